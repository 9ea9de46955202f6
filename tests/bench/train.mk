# make bench-step: a whole step against its products. make tests/bench/judge: a trained model against a byte
# model (tests/bench/judge JOB.ini [--sample FILE]).
EXTRA_PROGRAMS += bench-step tests/bench/judge tests/bench/overlap
EXTRA_DIST += tests/bench/ranks.sh tests/bench/overlap.sh tests/bench/zero.sh tests/bench/recompute.sh
bench_step_SOURCES = tests/bench/step.c
bench_step_LDADD = $(DSENGINE_LIBS)
tests_bench_judge_SOURCES = tests/bench/judge.c
tests_bench_judge_LDADD = libdsengine.a $(DSBASE_LIBS)
tests_bench_overlap_SOURCES = tests/bench/overlap.c
tests_bench_overlap_LDADD = $(DSENGINE_LIBS)
CLEANFILES += bench-step tests/bench/judge tests/bench/overlap
