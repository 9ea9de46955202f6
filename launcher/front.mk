# The front end: everything of ds-launch but main.c is in a library, so that the tests link it too.
noinst_LIBRARIES += libfront.a
libfront_a_CFLAGS = $(AM_CFLAGS) $(UV_CFLAGS)
libfront_a_SOURCES = \
	launcher/address.c launcher/address.h launcher/exportenv.c launcher/exportenv.h \
	launcher/jsonget.c launcher/jsonget.h launcher/progress.c launcher/progress.h \
	launcher/rundir.c launcher/rundir.h \
	launcher/judge.c launcher/judge.h launcher/jobstate.c launcher/jobstate.h \
	launcher/kv.c launcher/kv.h launcher/output.c launcher/output.h \
	launcher/writer.c launcher/writer.h \
	launcher/magic.c launcher/magic.h \
	launcher/options.c launcher/options.h \
	launcher/pipechan.c launcher/pipechan.h \
	launcher/place.c launcher/place.h \
	launcher/programs.c launcher/programs.h \
	launcher/spawner_exec.c launcher/spawner_local.c launcher/spawner.h
