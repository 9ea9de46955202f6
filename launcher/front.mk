# The front end: everything of ds-launch but main.c is in a library, so that the tests link it too.
noinst_LIBRARIES += libfront.a
libfront_a_CFLAGS = $(AM_CFLAGS) $(UV_CFLAGS)
libfront_a_SOURCES = \
	launcher/magic.c launcher/magic.h
