# the training loop with N ranks in one process
TRAIN_TEST_LIBS = libdsengine.a $(KERNELS_LIBS) $(DSBASE_LIBS) $(SODIUM_LIBS) $(CMOCKA_LIBS)
TRAIN_HARNESS = tests/sim/train_harness.c tests/sim/train_harness.h
TRAIN_TESTS = tests/sim/test_train tests/sim/test_resume tests/sim/test_zero tests/sim/test_alloc \
	tests/sim/test_account
check_PROGRAMS += $(TRAIN_TESTS)
TESTS += $(TRAIN_TESTS)
tests_sim_test_train_SOURCES = tests/sim/test_train.c $(TRAIN_HARNESS)
tests_sim_test_train_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_sim_test_train_LDADD = $(TRAIN_TEST_LIBS)
tests_sim_test_resume_SOURCES = tests/sim/test_resume.c $(TRAIN_HARNESS)
tests_sim_test_resume_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_sim_test_resume_LDADD = $(TRAIN_TEST_LIBS)
tests_sim_test_zero_SOURCES = tests/sim/test_zero.c $(TRAIN_HARNESS)
tests_sim_test_zero_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_sim_test_zero_LDADD = $(TRAIN_TEST_LIBS)
tests_sim_test_account_SOURCES = tests/sim/test_account.c $(TRAIN_HARNESS)
tests_sim_test_account_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_sim_test_account_LDADD = $(TRAIN_TEST_LIBS)
tests_sim_test_alloc_SOURCES = tests/sim/test_alloc.c $(TRAIN_HARNESS)
tests_sim_test_alloc_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_sim_test_alloc_LDADD = $(TRAIN_TEST_LIBS)
