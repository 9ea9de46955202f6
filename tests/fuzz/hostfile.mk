# fuzz entries of hostfile
