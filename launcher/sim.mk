# Simulated hosts, on both ends; what a launch costs.
libfront_a_SOURCES += launcher/cost.c launcher/spawner_sim.c
pkglibexec_PROGRAMS += ds-agent-sim
# What simranks.c defines is not taken from the library: ranks.c, pump.c, check.c and reap.c stay out.
ds_agent_sim_SOURCES = launcher/agent/sim.h launcher/agent/simmain.c launcher/agent/simranks.c
ds_agent_sim_LDADD = libagent.a libmsg.a libdsbase.a $(UV_LIBS)
# Output.
libfront_a_SOURCES += launcher/backlog.c launcher/backlog.h launcher/fold.c launcher/fold.h launcher/frontin.c
