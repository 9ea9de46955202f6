# cli tests of launcher
include tests/cli/front.mk
include tests/cli/ends.mk
