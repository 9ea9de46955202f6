# fuzz entries of ckpt
