# fuzz entries of hostfile
EXTRA_DIST += tests/fuzz/corpus/nodelist tests/fuzz/corpus/hostfile tests/fuzz/corpus/filter
FUZZ_REPLAY = tests/fuzz/replay.c tests/fuzz/fuzz.h
HOSTFILE_FUZZ = tests/fuzz/fuzz_nodelist tests/fuzz/fuzz_hostfile tests/fuzz/fuzz_filter
check_PROGRAMS += $(HOSTFILE_FUZZ)
TESTS += $(HOSTFILE_FUZZ)
tests_fuzz_fuzz_nodelist_SOURCES = tests/fuzz/fuzz_nodelist.c $(FUZZ_REPLAY)
tests_fuzz_fuzz_nodelist_LDADD = libhostfile.a $(DSBASE_LIBS)
tests_fuzz_fuzz_hostfile_SOURCES = tests/fuzz/fuzz_hostfile.c $(FUZZ_REPLAY)
tests_fuzz_fuzz_hostfile_LDADD = libhostfile.a $(DSBASE_LIBS)
tests_fuzz_fuzz_filter_SOURCES = tests/fuzz/fuzz_filter.c $(FUZZ_REPLAY)
tests_fuzz_fuzz_filter_LDADD = libhostfile.a $(DSBASE_LIBS)
