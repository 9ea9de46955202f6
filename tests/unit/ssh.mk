# unit tests of the spawner ssh's pure parts
SSH_UNIT = tests/unit/test_digest tests/unit/test_known_hosts tests/unit/test_ssh_config \
	tests/unit/test_ssh_link tests/unit/test_ssh_remote
check_PROGRAMS += $(SSH_UNIT)
TESTS += $(SSH_UNIT)
tests_unit_test_digest_SOURCES = tests/unit/test_digest.c
tests_unit_test_digest_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_digest_LDADD = libspawnssh.a $(DSBASE_LIBS) $(CMOCKA_LIBS)
tests_unit_test_known_hosts_SOURCES = tests/unit/test_known_hosts.c
tests_unit_test_known_hosts_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_known_hosts_LDADD = libspawnssh.a $(DSBASE_LIBS) $(CMOCKA_LIBS)
tests_unit_test_ssh_config_SOURCES = tests/unit/test_ssh_config.c
tests_unit_test_ssh_config_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_ssh_config_LDADD = libspawnssh.a $(DSBASE_LIBS) $(CMOCKA_LIBS)
tests_unit_test_ssh_link_SOURCES = tests/unit/test_ssh_link.c
tests_unit_test_ssh_link_CFLAGS = $(CMOCKA_TEST_CFLAGS) $(UV_CFLAGS)
tests_unit_test_ssh_link_LDADD = libspawnssh.a $(DSBASE_LIBS) $(UV_LIBS) $(CMOCKA_LIBS)
tests_unit_test_ssh_remote_SOURCES = tests/unit/test_ssh_remote.c
tests_unit_test_ssh_remote_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_ssh_remote_LDADD = libspawnssh.a $(DSBASE_LIBS) $(CMOCKA_LIBS)
