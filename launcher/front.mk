# The front end: everything of ds-launch but main.c is in a library, so that the tests link it too.
noinst_LIBRARIES += libfront.a
libfront_a_CFLAGS = $(AM_CFLAGS) $(UV_CFLAGS) $(HWLOC_CFLAGS)
libfront_a_SOURCES = \
	launcher/address.c launcher/address.h launcher/aside.c launcher/aside.h launcher/binding.c launcher/binding.h launcher/exportenv.c launcher/exportenv.h \
	launcher/jsonget.c launcher/jsonget.h launcher/progress.c launcher/progress.h \
	launcher/rundir.c launcher/rundir.h \
	launcher/command.c launcher/command.h launcher/control.c launcher/control.h launcher/everywhere.c launcher/everywhere.h \
	launcher/folders.c launcher/frontctl.c launcher/gather.c launcher/gather.h \
	launcher/agents.c launcher/front.c launcher/front.h launcher/frontout.c launcher/job.c launcher/spawning.c \
	launcher/stdinpump.c launcher/stdinpump.h launcher/task.c launcher/task.h launcher/task_torch.c launcher/verdict.c \
	launcher/judge.c launcher/judge.h launcher/jobstate.c launcher/jobstate.h \
	launcher/keeper.c launcher/keeper.h launcher/kv.c launcher/kv.h launcher/output.c launcher/output.h \
	launcher/writer.c launcher/writer.h \
	launcher/magic.c launcher/magic.h \
	launcher/options.c launcher/options.h launcher/options_table.h launcher/options_torch.c launcher/options_use.c \
	launcher/torchlog.c launcher/torchlog.h \
	launcher/pidfile.c launcher/pidfile.h \
	launcher/pipechan.c launcher/pipechan.h \
	launcher/place.c launcher/place.h launcher/planmap.c launcher/planmap.h launcher/siting.c \
	launcher/programs.c launcher/programs.h launcher/said.c launcher/said.h \
	launcher/topo_hwloc.c launcher/topo_hwloc.h \
	launcher/spawner_exec.c launcher/spawner_local.c launcher/spawner.h launcher/spawners.c
FRONT_LIBS = libfront.a $(SPAWNSSH_LIBS) libmsg.a libhostfile.a $(DSBASE_LIBS) $(UV_LIBS) $(HWLOC_LIBS)

bin_PROGRAMS += ds-launch
ds_launch_CFLAGS = $(AM_CFLAGS) $(UV_CFLAGS)
ds_launch_SOURCES = launcher/main.c launcher/exec.c launcher/jobs.c launcher/subcommands.c launcher/subcommands.h
ds_launch_LDADD = $(FRONT_LIBS)
