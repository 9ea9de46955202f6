# unit tests of launcher
include tests/unit/agent.mk
