# The front end: everything of ds-launch but main.c is in a library, so that the tests link it too.
noinst_LIBRARIES += libfront.a
libfront_a_CFLAGS = $(AM_CFLAGS) $(UV_CFLAGS)
libfront_a_SOURCES = \
	launcher/kv.c launcher/kv.h \
	launcher/magic.c launcher/magic.h \
	launcher/options.c launcher/options.h \
	launcher/pipechan.c launcher/pipechan.h \
	launcher/place.c launcher/place.h \
	launcher/programs.c launcher/programs.h \
	launcher/spawner_exec.c launcher/spawner_local.c launcher/spawner.h
