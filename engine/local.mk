# engine: libdsengine.a and ds-rank. Each folder below has its own local.mk.
noinst_LIBRARIES += libdsengine.a
libdsengine_a_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
libdsengine_a_SOURCES =
include engine/device/local.mk
include engine/comm/local.mk
include engine/data/local.mk
include engine/ckpt/local.mk
include engine/core.mk
EXTRA_DIST += engine/README.md engine/optim/README.md engine/param/README.md engine/tensor/README.md \
	engine/train/README.md engine/zero/README.md
