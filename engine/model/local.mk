# engine/model: the list of layers and the built-in ones; engine/ops: what their files share
libdsengine_a_SOURCES += engine/model/model.h engine/model/model.c \
	engine/model/list.h engine/model/list.c \
	engine/model/config.h engine/model/config.c \
	engine/model/embedding.c \
	engine/model/block.h engine/model/block.c engine/model/block_attn.c engine/model/block_mlp.c \
	engine/model/norm_layer.c engine/model/head.c \
	engine/ops/scratch.h \
	engine/ops/linear.h engine/ops/linear.c \
	engine/ops/norm.h engine/ops/norm.c
EXTRA_DIST += engine/model/README.md engine/ops/README.md
