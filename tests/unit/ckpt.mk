# unit tests of ckpt
