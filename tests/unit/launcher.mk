# unit tests of launcher
include tests/unit/agent.mk
include tests/unit/front.mk
include tests/unit/ends.mk
include tests/unit/ssh.mk
