# hostfile: who there is.
noinst_LIBRARIES += libhostfile.a
libhostfile_a_SOURCES =
