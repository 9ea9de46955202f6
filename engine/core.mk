# mesh, tensor, param, model, zero, optim, train and the rank's main program
libdsengine_a_SOURCES += engine/engine.h engine/layer.h engine/mesh.h engine/mesh.c \
	engine/tensor/tensor.h engine/tensor/tensor.c \
	engine/param/param.h engine/param/param.c \
	engine/optim/schedule.h engine/optim/schedule.c \
	engine/zero/zero.h engine/zero/zero.c \
	engine/train/exec.h engine/train/exec.c
include engine/model/local.mk
