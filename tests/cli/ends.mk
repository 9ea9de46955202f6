# How jobs end, and how a running one is reached.
ENDS_CLI_TESTS = tests/cli/control.t tests/cli/exec.t tests/cli/ends.t
TESTS += $(ENDS_CLI_TESTS)
EXTRA_DIST += $(ENDS_CLI_TESTS)
