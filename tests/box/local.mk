# tests/box: real sshd in a cluster on this machine.
check_PROGRAMS += tests/box/channel
tests_box_channel_SOURCES = tests/box/channel.c
tests_box_channel_CFLAGS = $(AM_CFLAGS) $(UV_CFLAGS)
tests_box_channel_LDADD = $(SPAWNSSH_LIBS) libfront.a $(DSBASE_LIBS) $(UV_LIBS)
BOX_TESTS = tests/box/ssh.t tests/box/keys.t tests/box/loss.t tests/box/job.t tests/box/net.t tests/box/traps.t
BOX_TESTS += tests/box/reach.t tests/box/words.t
BOX_TESTS += tests/box/ends.t tests/box/cuts.t
TESTS += $(BOX_TESTS)
EXTRA_DIST += $(BOX_TESTS) tests/box/lib.sh tests/box/box tests/box/README.md
