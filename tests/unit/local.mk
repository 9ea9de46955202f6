# tests/unit: one cmocka program per module. Each owner keeps its list in its own fragment.
CMOCKA_TEST_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
include tests/unit/base.mk
include tests/unit/hostfile.mk
include tests/unit/launcher.mk
include tests/unit/comm.mk
include tests/unit/core.mk
include tests/unit/data.mk
include tests/unit/ckpt.mk
include tests/unit/model.mk
