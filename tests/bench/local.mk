# tests/bench
EXTRA_PROGRAMS =
include tests/bench/kernels.mk
