# unit tests of what front end and agent share, and of the agent
AGENT_UNIT_TESTS = tests/unit/test_msg tests/unit/test_rankenv
if HAVE_CMOCKA
check_PROGRAMS += $(AGENT_UNIT_TESTS)
TESTS += $(AGENT_UNIT_TESTS)
endif
AGENT_TEST_LIBS = libmsg.a libdsbase.a $(CMOCKA_LIBS)
tests_unit_test_msg_SOURCES = tests/unit/test_msg.c
tests_unit_test_msg_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_msg_LDADD = $(AGENT_TEST_LIBS)
tests_unit_test_rankenv_SOURCES = tests/unit/test_rankenv.c
tests_unit_test_rankenv_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_rankenv_LDADD = $(AGENT_TEST_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_agent tests/unit/test_agent_link tests/unit/agent_rank
TESTS += tests/unit/test_agent tests/unit/test_agent_link
endif
tests_unit_test_agent_SOURCES = tests/unit/test_agent.c tests/unit/agent_driver.c tests/unit/agent_driver.h
tests_unit_test_agent_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_agent_LDADD = $(AGENT_TEST_LIBS)
tests_unit_test_agent_link_SOURCES = tests/unit/test_agent_link.c tests/unit/agent_driver.c \
	tests/unit/agent_driver.h
tests_unit_test_agent_link_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_agent_link_LDADD = $(AGENT_TEST_LIBS)
tests_unit_agent_rank_SOURCES = tests/unit/agent_rank.c
tests_unit_agent_rank_LDADD = libdsbase.a -lpthread -lm
