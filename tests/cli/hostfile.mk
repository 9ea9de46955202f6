# cli tests of hostfile
TESTS += tests/cli/hostfile.t
EXTRA_DIST += tests/cli/hostfile.t
