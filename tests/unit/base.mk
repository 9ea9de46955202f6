# unit tests of base
BASE_TEST_LIBS = $(DSBASE_LIBS) $(CMOCKA_LIBS)
BASE_UNIT = tests/unit/test_base tests/unit/test_rng tests/unit/test_frag tests/unit/test_settings \
	tests/unit/test_job tests/unit/test_link
check_PROGRAMS += $(BASE_UNIT)
TESTS += $(BASE_UNIT)
tests_unit_test_base_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_base_LDADD = $(BASE_TEST_LIBS)
tests_unit_test_rng_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_rng_LDADD = $(BASE_TEST_LIBS)
tests_unit_test_frag_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_frag_LDADD = $(BASE_TEST_LIBS)
tests_unit_test_settings_SOURCES = tests/unit/test_settings.c tests/unit/try_settings.h
tests_unit_test_settings_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_settings_LDADD = $(BASE_TEST_LIBS)
tests_unit_test_job_SOURCES = tests/unit/test_job.c tests/unit/try_settings.h
tests_unit_test_job_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_job_LDADD = $(BASE_TEST_LIBS)
tests_unit_test_link_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_link_LDADD = $(BASE_TEST_LIBS)
