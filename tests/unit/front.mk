FRONT_TESTS = tests/unit/test_address tests/unit/test_exportenv tests/unit/test_jobstate tests/unit/test_kv \
	tests/unit/test_magic tests/unit/test_options tests/unit/test_output tests/unit/test_place \
	tests/unit/test_progress
if HAVE_CMOCKA
check_PROGRAMS += $(FRONT_TESTS)
TESTS += $(FRONT_TESTS)
endif
FRONT_TEST_CFLAGS = $(CMOCKA_TEST_CFLAGS) $(UV_CFLAGS)
FRONT_TEST_LIBS = $(FRONT_LIBS) $(CMOCKA_LIBS)
tests_unit_test_address_CFLAGS = $(FRONT_TEST_CFLAGS)
tests_unit_test_address_LDADD = $(FRONT_TEST_LIBS)
tests_unit_test_exportenv_CFLAGS = $(FRONT_TEST_CFLAGS)
tests_unit_test_exportenv_LDADD = $(FRONT_TEST_LIBS)
tests_unit_test_jobstate_CFLAGS = $(FRONT_TEST_CFLAGS)
tests_unit_test_jobstate_LDADD = $(FRONT_TEST_LIBS)
tests_unit_test_kv_CFLAGS = $(FRONT_TEST_CFLAGS)
tests_unit_test_kv_LDADD = $(FRONT_TEST_LIBS)
tests_unit_test_magic_CFLAGS = $(FRONT_TEST_CFLAGS)
tests_unit_test_magic_LDADD = $(FRONT_TEST_LIBS)
tests_unit_test_options_CFLAGS = $(FRONT_TEST_CFLAGS)
tests_unit_test_options_LDADD = $(FRONT_TEST_LIBS)
tests_unit_test_output_CFLAGS = $(FRONT_TEST_CFLAGS)
tests_unit_test_output_LDADD = $(FRONT_TEST_LIBS)
tests_unit_test_place_CFLAGS = $(FRONT_TEST_CFLAGS)
tests_unit_test_place_LDADD = $(FRONT_TEST_LIBS)
tests_unit_test_progress_CFLAGS = $(FRONT_TEST_CFLAGS)
tests_unit_test_progress_LDADD = $(FRONT_TEST_LIBS)
