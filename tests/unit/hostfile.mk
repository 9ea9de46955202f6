# unit tests of hostfile
HOSTFILE_TEST_LIBS = libhostfile.a $(DSBASE_LIBS) $(CMOCKA_LIBS)
HOSTFILE_UNIT = tests/unit/test_nodelist tests/unit/test_hostfile tests/unit/test_filter
check_PROGRAMS += $(HOSTFILE_UNIT)
TESTS += $(HOSTFILE_UNIT)
tests_unit_test_nodelist_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_nodelist_LDADD = $(HOSTFILE_TEST_LIBS)
tests_unit_test_hostfile_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_hostfile_LDADD = $(HOSTFILE_TEST_LIBS)
tests_unit_test_filter_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_filter_LDADD = $(HOSTFILE_TEST_LIBS)
