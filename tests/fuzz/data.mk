# fuzz entries of data
EXTRA_DIST += tests/fuzz/corpus/bin
check_PROGRAMS += tests/fuzz/fuzz_bin
TESTS += tests/fuzz/fuzz_bin
tests_fuzz_fuzz_bin_SOURCES = tests/fuzz/fuzz_bin.c $(FUZZ_REPLAY)
tests_fuzz_fuzz_bin_LDADD = libdsengine.a $(DSBASE_LIBS)
