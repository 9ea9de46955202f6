# fuzz entries of base
EXTRA_DIST += tests/fuzz/corpus/settings tests/fuzz/corpus/wire
BASE_FUZZ = tests/fuzz/fuzz_settings tests/fuzz/fuzz_wire
check_PROGRAMS += $(BASE_FUZZ)
TESTS += $(BASE_FUZZ)
tests_fuzz_fuzz_settings_SOURCES = tests/fuzz/fuzz_settings.c $(FUZZ_REPLAY)
tests_fuzz_fuzz_settings_LDADD = $(DSBASE_LIBS)
tests_fuzz_fuzz_wire_SOURCES = tests/fuzz/fuzz_wire.c $(FUZZ_REPLAY)
tests_fuzz_fuzz_wire_LDADD = $(DSBASE_LIBS)
