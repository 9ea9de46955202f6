# Words of other launchers: restarts.
libfront_a_SOURCES += launcher/restart.c
