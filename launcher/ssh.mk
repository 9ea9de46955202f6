# The spawner over SSH. libssh's header is included in ssh_wire.c only.
noinst_LIBRARIES += libspawnssh.a
libspawnssh_a_CFLAGS = $(AM_CFLAGS) $(UV_CFLAGS) $(LIBSSH_CFLAGS)
libspawnssh_a_SOURCES = \
	launcher/digest.c launcher/digest.h \
	launcher/known_hosts.c launcher/known_hosts.h \
	launcher/ssh_config.c launcher/ssh_config.h \
	launcher/ssh_dial.c launcher/ssh_dial.h \
	launcher/ssh_target.c launcher/ssh_target.h \
	launcher/ssh_link.c launcher/ssh_link.h \
	launcher/ssh_login.c launcher/ssh_login.h \
	launcher/spawner_ssh.c \
	launcher/ssh_stream.c launcher/ssh_stream.h \
	launcher/ssh_remote.c launcher/ssh_remote.h \
	launcher/ssh_trust.c launcher/ssh_trust.h \
	launcher/ssh_tube.c launcher/ssh_tube.h \
	launcher/ssh_wire.c launcher/ssh_wire.h
SPAWNSSH_LIBS = libspawnssh.a $(LIBSSH_LIBS)
