/* Reading mapped files that may be cut short meanwhile. Internal to engine/data. */
#ifndef DS_DATA_GUARD_H
#define DS_DATA_GUARD_H

/* Calls read(ctx), which looks into mapped files and allocates nothing. NULL when it returned; else the
 * address that has no page any more (the file was cut short, or its disk fails), and read was left
 * there. Any number of threads at once; not nested. SIGBUS elsewhere ends the process as ever. */
const void *map_guard(void (*read)(void *ctx), void *ctx);

#endif
