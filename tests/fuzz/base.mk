# fuzz entries of base
