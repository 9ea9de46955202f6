# cli tests of launcher
include tests/cli/front.mk
