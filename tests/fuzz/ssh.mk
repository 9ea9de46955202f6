# fuzz entries of the spawner ssh
EXTRA_DIST += tests/fuzz/corpus/ssh_config tests/fuzz/corpus/known_hosts
SSH_FUZZ = tests/fuzz/fuzz_ssh_config tests/fuzz/fuzz_known_hosts
check_PROGRAMS += $(SSH_FUZZ)
TESTS += $(SSH_FUZZ)
tests_fuzz_fuzz_ssh_config_SOURCES = tests/fuzz/fuzz_ssh_config.c $(FUZZ_REPLAY)
tests_fuzz_fuzz_ssh_config_LDADD = libspawnssh.a $(DSBASE_LIBS)
tests_fuzz_fuzz_known_hosts_SOURCES = tests/fuzz/fuzz_known_hosts.c $(FUZZ_REPLAY)
tests_fuzz_fuzz_known_hosts_LDADD = libspawnssh.a $(DSBASE_LIBS)
