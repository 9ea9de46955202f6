# unit tests of device and comm
COMM_TEST_LIBS = libdsengine.a $(DSBASE_LIBS) $(SODIUM_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_device
TESTS += tests/unit/test_device
tests_unit_test_device_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_device_LDADD = $(COMM_TEST_LIBS)
