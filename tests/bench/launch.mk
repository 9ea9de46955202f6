# make bench-launch: starts over SSH against pdsh and clush. As root.
EXTRA_PROGRAMS += tests/bench/launch/usage
tests_bench_launch_usage_SOURCES = tests/bench/launch/usage.c
EXTRA_DIST += tests/bench/launch/launch.sh tests/bench/launch/README.md
CLEANFILES += tests/bench/launch/usage
.PHONY: bench-launch
bench-launch: tests/bench/launch/usage ds-launch ds-agent
	for n in 64 128; do $(srcdir)/tests/bench/launch/launch.sh . peers $$n || exit; done
	$(srcdir)/tests/bench/launch/launch.sh . cost 512
	$(srcdir)/tests/bench/launch/launch.sh . first 64
