# unit tests of core: mesh, parameter table, schedules
CORE_TEST_LIBS = libdsengine.a $(KERNELS_LIBS) $(DSBASE_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_mesh tests/unit/test_param tests/unit/test_schedule tests/unit/test_scale tests/unit/test_optim
TESTS += tests/unit/test_mesh tests/unit/test_param tests/unit/test_schedule tests/unit/test_scale tests/unit/test_optim
tests_unit_test_mesh_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_mesh_LDADD = $(CORE_TEST_LIBS)
tests_unit_test_param_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_param_LDADD = $(CORE_TEST_LIBS)
tests_unit_test_optim_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_optim_LDADD = $(CORE_TEST_LIBS)
tests_unit_test_scale_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_scale_LDADD = $(CORE_TEST_LIBS)
tests_unit_test_schedule_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_schedule_LDADD = $(CORE_TEST_LIBS)
