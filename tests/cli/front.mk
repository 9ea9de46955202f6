FRONT_CLI_TESTS = tests/cli/front_words.t tests/cli/front_run.t tests/cli/torchrun.t tests/cli/completion.t tests/cli/front_job.t \
	tests/cli/front_bind.t tests/cli/ports.t tests/cli/private.t tests/cli/traps.t
FRONT_CLI_TESTS += tests/cli/front_breakdown.t tests/cli/liar.t tests/cli/sim.t tests/cli/output.t tests/cli/logs.t
TESTS += $(FRONT_CLI_TESTS)
EXTRA_DIST += $(FRONT_CLI_TESTS) tests/cli/taplib.sh tests/cli/liar.py tests/cli/terminal.py tests/cli/gpus.xml
