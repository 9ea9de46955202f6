# tests/sim: N ranks, as threads or processes
include tests/sim/comm.mk
check_PROGRAMS += tests/sim/test_layers
TESTS += tests/sim/test_layers
tests_sim_test_layers_SOURCES = tests/sim/test_layers.c $(MODEL_TEST_SOURCES)
tests_sim_test_layers_CFLAGS = $(CMOCKA_TEST_CFLAGS) $(OPENMP_CFLAGS)
tests_sim_test_layers_LDADD = $(MODEL_TEST_LIBS)
include tests/sim/train.mk
