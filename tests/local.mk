# tests: one local.mk per folder.
include tests/unit/local.mk
include tests/sim/local.mk
include tests/kernels/local.mk
include tests/cli/local.mk
include tests/box/local.mk
include tests/lint/local.mk
include tests/fuzz/local.mk
include tests/bench/local.mk
EXTRA_DIST += tests/README.md tests/fuzz/README.md tests/bench/README.md tests/cli/README.md \
	tests/kernels/README.md tests/lint/README.md tests/sim/README.md tests/unit/README.md
