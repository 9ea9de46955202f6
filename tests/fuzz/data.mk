# fuzz entries of data
