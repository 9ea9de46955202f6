# cli tests of launcher
include tests/cli/front.mk
include tests/cli/ends.mk
TESTS += tests/cli/reach.t
EXTRA_DIST += tests/cli/reach.t
