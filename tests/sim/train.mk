# the training loop with N ranks in one process
TRAIN_TEST_LIBS = libdsengine.a $(KERNELS_LIBS) $(DSBASE_LIBS) $(SODIUM_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/sim/test_train tests/sim/test_zero tests/sim/test_alloc
TESTS += tests/sim/test_train tests/sim/test_zero tests/sim/test_alloc
tests_sim_test_train_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_sim_test_train_LDADD = $(TRAIN_TEST_LIBS)
tests_sim_test_alloc_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_sim_test_alloc_LDADD = $(TRAIN_TEST_LIBS)
tests_sim_test_zero_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_sim_test_zero_LDADD = $(TRAIN_TEST_LIBS)
