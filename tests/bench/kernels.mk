# make bench-kernels: the operators' shares of a training step. Not part of make check.
EXTRA_PROGRAMS += bench-kernels
CLEANFILES += bench-kernels$(EXEEXT)
bench_kernels_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
bench_kernels_SOURCES = tests/bench/kernels.c
bench_kernels_LDADD = $(KERNELS_LIBS)
