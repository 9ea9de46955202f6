# Words of other launchers: restarts, files of output.
libfront_a_SOURCES += launcher/frontlogs.c launcher/restart.c launcher/shrink.c
