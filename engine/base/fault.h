/* Fault countdowns for tests: DS_FAULT="write:3,fsync:1" makes the third write and the first fsync that
 * go through fault_hit() fail. In a build without them set this costs one load. */
#ifndef DS_BASE_FAULT_H
#define DS_BASE_FAULT_H

/* 1 when the countdown of this name reaches zero now: the caller fails with errno = *err_no (EIO unless
 * the entry says NAME:N:ENOSPC). "NAME:N:KILL" ends the process by SIGKILL here; "NAME:N:5000"
 * waits 5,000 ms here and succeeds, like a file system that hangs for a while. */
int fault_hit(const char *name, int *err_no);

#endif
