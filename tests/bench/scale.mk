# make bench-scale: 4,096 simulated nodes. make bench-output: 2 million lines of 8 ranks against cat and tee.
EXTRA_DIST += tests/bench/scale.sh
.PHONY: bench-scale
bench-scale: ds-launch ds-agent-sim
	$(srcdir)/tests/bench/scale.sh .

EXTRA_PROGRAMS += tests/bench/printlines
EXTRA_DIST += tests/bench/output.sh
CLEANFILES += tests/bench/printlines$(EXEEXT)
tests_bench_printlines_SOURCES = tests/bench/printlines.c
.PHONY: bench-output
bench-output: ds-launch ds-agent tests/bench/printlines
	$(srcdir)/tests/bench/output.sh .
