# make bench-scale: 4,096 simulated nodes. make bench-output: 2 million lines of 8 ranks against cat and tee.
EXTRA_DIST += tests/bench/scale.sh
.PHONY: bench-scale
bench-scale: ds-launch ds-agent-sim
	$(srcdir)/tests/bench/scale.sh .
