# collectives over N ranks
COMM_SIM_SOURCES = tests/sim/world.c tests/sim/world.h
check_PROGRAMS += tests/sim/test_comm
TESTS += tests/sim/test_comm
tests_sim_test_comm_SOURCES = tests/sim/test_comm.c $(COMM_SIM_SOURCES)
tests_sim_test_comm_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_sim_test_comm_LDADD = $(COMM_TEST_LIBS)

check_PROGRAMS += tests/sim/test_comm_fail
TESTS += tests/sim/test_comm_fail
tests_sim_test_comm_fail_SOURCES = tests/sim/test_comm_fail.c $(COMM_SIM_SOURCES)
tests_sim_test_comm_fail_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_sim_test_comm_fail_LDADD = $(COMM_TEST_LIBS)
