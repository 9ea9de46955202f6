# What both ends of a channel share, and the agent.
noinst_LIBRARIES += libmsg.a
libmsg_a_SOURCES = \
	launcher/msg.c launcher/msg.h \
	launcher/rankenv.c launcher/rankenv.h \
	launcher/spawn.c launcher/spawn.h
