# fuzz entries of ckpt
EXTRA_DIST += tests/fuzz/corpus/ckpt
check_PROGRAMS += tests/fuzz/fuzz_ckpt
TESTS += tests/fuzz/fuzz_ckpt
tests_fuzz_fuzz_ckpt_SOURCES = tests/fuzz/fuzz_ckpt.c $(FUZZ_REPLAY)
tests_fuzz_fuzz_ckpt_LDADD = libdsengine.a $(DSBASE_LIBS)
