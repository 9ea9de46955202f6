# engine/base: the floor that everyone may stand on.
noinst_LIBRARIES += libdsbase.a
libdsbase_a_CFLAGS = $(AM_CFLAGS) $(INIH_CFLAGS) $(JANSSON_CFLAGS) $(XXHASH_CFLAGS)
libdsbase_a_SOURCES = engine/base/buf.c engine/base/buf.h \
	engine/base/clock.c engine/base/clock.h \
	engine/base/err.c engine/base/err.h \
	engine/base/fault.c engine/base/fault.h \
	engine/base/hash.c engine/base/hash.h \
	engine/base/log.c engine/base/log.h \
	engine/base/parse.c engine/base/parse.h \
	engine/base/rng.c engine/base/rng.h \
	engine/base/wire.c engine/base/wire.h \
	engine/base/boot.h
DSBASE_LIBS = libdsbase.a $(INIH_LIBS) $(JANSSON_LIBS) $(XXHASH_LIBS) -lpthread -lm
