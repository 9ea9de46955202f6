# cli tests of hostfile
TESTS += tests/cli/hostfile.t tests/cli/quickstart.t
EXTRA_DIST += tests/cli/hostfile.t tests/cli/quickstart.t
