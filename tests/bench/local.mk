# tests/bench: speed, as ratios in one run. Not part of make check.
EXTRA_PROGRAMS =
include tests/bench/kernels.mk
include tests/bench/comm.mk

# Judges a trained model: make tests/bench/judge, then tests/bench/judge JOB.ini [--sample FILE]
EXTRA_PROGRAMS += tests/bench/judge
tests_bench_judge_SOURCES = tests/bench/judge.c
tests_bench_judge_LDADD = libdsengine.a $(DSBASE_LIBS)
CLEANFILES += tests/bench/judge
