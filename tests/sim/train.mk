# the training loop with N ranks in one process
check_PROGRAMS += tests/sim/test_train
TESTS += tests/sim/test_train
tests_sim_test_train_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_sim_test_train_LDADD = libdsengine.a $(KERNELS_LIBS) $(DSBASE_LIBS) $(SODIUM_LIBS) $(CMOCKA_LIBS)
