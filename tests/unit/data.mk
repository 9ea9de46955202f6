# unit tests of data
DATA_TEST_LIBS = libdsengine.a $(DSBASE_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_data tests/unit/test_shard
TESTS += tests/unit/test_data tests/unit/test_shard
tests_unit_test_data_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_data_LDADD = $(DATA_TEST_LIBS)
tests_unit_test_shard_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_shard_LDADD = $(DATA_TEST_LIBS)
