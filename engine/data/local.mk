# engine/data
libdsengine_a_SOURCES += engine/data/data.h engine/data/data.c engine/data/file.h \
	engine/data/file.c engine/data/guard.h engine/data/guard.c engine/data/shard.c
EXTRA_DIST += engine/data/README.md
