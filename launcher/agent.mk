# What both ends of a channel share, and the agent.
noinst_LIBRARIES += libmsg.a
libmsg_a_SOURCES = \
	launcher/devices.c launcher/devices.h launcher/msg.c launcher/msg.h \
	launcher/rankenv.c launcher/rankenv.h \
	launcher/spawn.c launcher/spawn.h \
	launcher/topo.c launcher/topo.h

# The agent runs on nodes that have nothing of ours: static, on libuv's archive. Sanitizers need the
# dynamic loader, so there it is an ordinary program.
noinst_LIBRARIES += libagent.a
libagent_a_CFLAGS = $(AM_CFLAGS) $(UV_CFLAGS)
libagent_a_SOURCES = \
	launcher/agent/agent.h \
	launcher/agent/cgroup.c launcher/agent/cgroup.h \
	launcher/agent/chan.c \
	launcher/agent/check.c \
	launcher/agent/errfile.c \
	launcher/agent/limits.c \
	launcher/agent/links.c launcher/agent/packet.c launcher/agent/packet.h \
	launcher/agent/loop.c launcher/agent/loop.h \
	launcher/agent/node.c \
	launcher/agent/oom.c \
	launcher/agent/port.c \
	launcher/agent/pump.c \
	launcher/agent/ranks.c \
	launcher/agent/reap.c launcher/agent/reap.h \
	launcher/agent/store.c launcher/agent/store.h \
	launcher/agent/tell.c \
	launcher/agent/venv.c \
	launcher/agent/worker.c
EXTRA_DIST += launcher/agent/README.md
pkglibexec_PROGRAMS += ds-agent
ds_agent_SOURCES = launcher/agent/main.c
if SANITIZED
ds_agent_LDADD = libagent.a libmsg.a libdsbase.a $(UV_LIBS)
else
ds_agent_SOURCES += launcher/agent/nonss.c
ds_agent_LDFLAGS = $(AM_LDFLAGS) -static
ds_agent_LDADD = libagent.a libmsg.a libdsbase.a $(UV_STATIC_LIBS)
endif
