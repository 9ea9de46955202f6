# comm against Open MPI: make bench-comm, then tests/bench/comm.sh
EXTRA_PROGRAMS += tests/bench/comm/bench_comm
tests_bench_comm_bench_comm_LDADD = libdsengine.a $(DSBASE_LIBS) $(SODIUM_LIBS)
EXTRA_DIST += tests/bench/comm.sh tests/bench/comm/mpi.c
CLEANFILES += tests/bench/comm/bench_comm
.PHONY: bench-comm
bench-comm: tests/bench/comm/bench_comm
	$(srcdir)/tests/bench/comm.sh .
