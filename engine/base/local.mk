# engine/base: the floor that everyone may stand on.
noinst_LIBRARIES += libdsbase.a
libdsbase_a_CFLAGS = $(AM_CFLAGS) $(INIH_CFLAGS) $(JANSSON_CFLAGS) $(XXHASH_CFLAGS)
libdsbase_a_SOURCES = engine/base/err.c
DSBASE_LIBS = libdsbase.a $(INIH_LIBS) $(JANSSON_LIBS) $(XXHASH_LIBS) -lpthread -lm
