# fuzz entries of launcher
include tests/fuzz/agent.mk
