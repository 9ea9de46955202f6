# fuzz entries of what front end and agent share
check_PROGRAMS += tests/fuzz/fuzz_msg
TESTS += tests/fuzz/fuzz_msg
EXTRA_DIST += tests/fuzz/corpus/msg/agent tests/fuzz/corpus/msg/front \
	tests/fuzz/corpus/msg/hello-topology tests/fuzz/corpus/msg/spawn-runs
tests_fuzz_fuzz_msg_SOURCES = tests/fuzz/fuzz_msg.c tests/fuzz/replay.c tests/fuzz/fuzz.h
tests_fuzz_fuzz_msg_LDADD = libmsg.a $(DSBASE_LIBS)

# and of the front end against agents that lie
check_PROGRAMS += tests/fuzz/fuzz_front
TESTS += tests/fuzz/fuzz_front
EXTRA_DIST += tests/fuzz/corpus/front
tests_fuzz_fuzz_front_SOURCES = tests/fuzz/fuzz_front.c $(FUZZ_REPLAY)
tests_fuzz_fuzz_front_CFLAGS = $(AM_CFLAGS) $(UV_CFLAGS)
tests_fuzz_fuzz_front_LDADD = $(FRONT_LIBS)
