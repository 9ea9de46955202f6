# fuzz entries of the environment and of torchrun's words
EXTRA_DIST += tests/fuzz/corpus/envfile tests/fuzz/corpus/words
WORDS_FUZZ = tests/fuzz/fuzz_envfile tests/fuzz/fuzz_words
check_PROGRAMS += $(WORDS_FUZZ)
TESTS += $(WORDS_FUZZ)
tests_fuzz_fuzz_envfile_SOURCES = tests/fuzz/fuzz_envfile.c $(FUZZ_REPLAY)
tests_fuzz_fuzz_envfile_LDADD = libfront.a libmsg.a $(DSBASE_LIBS)
tests_fuzz_fuzz_words_SOURCES = tests/fuzz/fuzz_words.c $(FUZZ_REPLAY)
tests_fuzz_fuzz_words_LDADD = libagent.a libfront.a libmsg.a $(DSBASE_LIBS)
