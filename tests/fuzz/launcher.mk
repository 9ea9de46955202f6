# fuzz entries of launcher
