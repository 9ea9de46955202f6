# mesh, tensor, param, model, zero, optim, train and the rank's main program
libdsengine_a_SOURCES += engine/engine.h engine/layer.h engine/mesh.h engine/mesh.c \
	engine/tensor/tensor.h engine/tensor/tensor.c \
	engine/param/param.h engine/param/param.c \
	engine/optim/schedule.h engine/optim/schedule.c engine/optim/optim.h engine/optim/optim.c engine/optim/scale.h engine/optim/scale.c \
	engine/zero/order.h engine/zero/order.c \
	engine/zero/zero.h engine/zero/zero_impl.h engine/zero/zero.c engine/zero/reduce.c engine/zero/norm.c \
	engine/zero/update.c engine/zero/slots.c engine/zero/live.c engine/zero/layers.c \
	engine/train/exec.h engine/train/exec_impl.h engine/train/exec.c engine/train/exec_shape.c \
	engine/train/setup.h engine/train/setup.c \
	engine/train/train.h engine/train/train.c engine/train/step.c engine/train/state.c engine/train/origin.c \
	engine/train/account.c engine/train/report.c engine/train/breakdown.c engine/train/check.c engine/train/lr.c engine/train/threads.c \
	engine/train/sample.h engine/train/sample.c \
	engine/engine.c
include engine/model/local.mk

DSENGINE_LIBS = libdsengine.a $(KERNELS_LIBS) $(DSBASE_LIBS) $(SODIUM_LIBS)
pkglibexec_PROGRAMS += ds-rank
ds_rank_SOURCES = engine/rank.c
ds_rank_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
ds_rank_LDADD = $(DSENGINE_LIBS)
