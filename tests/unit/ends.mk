# How jobs end, and how a running one is reached.
if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_control tests/unit/test_gather tests/unit/test_stdinpump
TESTS += tests/unit/test_control tests/unit/test_gather tests/unit/test_stdinpump
endif
tests_unit_test_gather_CFLAGS = $(FRONT_TEST_CFLAGS)
tests_unit_test_gather_LDADD = $(FRONT_TEST_LIBS)
tests_unit_test_control_CFLAGS = $(FRONT_TEST_CFLAGS)
tests_unit_test_control_LDADD = $(FRONT_TEST_LIBS)
tests_unit_test_stdinpump_CFLAGS = $(FRONT_TEST_CFLAGS)
tests_unit_test_stdinpump_LDADD = $(FRONT_TEST_LIBS)
