# fuzz entries of launcher
include tests/fuzz/agent.mk
include tests/fuzz/ssh.mk
include tests/fuzz/words.mk
