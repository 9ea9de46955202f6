# tests/cli: shell, TAP.
include tests/cli/hostfile.mk
include tests/cli/launcher.mk
include tests/cli/engine.mk
