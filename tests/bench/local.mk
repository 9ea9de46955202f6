# tests/bench: speed, as ratios in one run. Not part of make check.
EXTRA_PROGRAMS =
include tests/bench/kernels.mk
include tests/bench/comm.mk
include tests/bench/train.mk
include tests/bench/launch.mk
include tests/bench/scale.mk
