# engine/ckpt
libdsengine_a_SOURCES += engine/ckpt/ckpt.h engine/ckpt/files.c engine/ckpt/files.h \
	engine/ckpt/format.h engine/ckpt/image.c engine/ckpt/main.c engine/ckpt/parse.c \
	engine/ckpt/reader.c engine/ckpt/choose.c engine/ckpt/reader.h engine/ckpt/writer.c
EXTRA_DIST += engine/ckpt/README.md engine/ckpt/FORMAT.md
