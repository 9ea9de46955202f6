# hostfile: who there is.
noinst_LIBRARIES += libhostfile.a
libhostfile_a_SOURCES = hostfile/hostfile.h hostfile/nodelist.h hostfile/ids.h hostfile/hosts.c \
	hostfile/nodelist.c hostfile/ids.c hostfile/hostfile.c hostfile/source.c hostfile/filter.c
EXTRA_DIST += hostfile/README.md
