/* The folder a run leaves behind: job.json, the job file, events.jsonl, metrics.jsonl, logs/, ckpt/. */
#ifndef DS_RUNDIR_H
#define DS_RUNDIR_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

/* The default path: ds-runs/NAME-YYYYmmdd-HHMMSS under cwd, with -2, -3 ... when that is taken. Owned. */
char *rundir_name(const char *cwd, const char *name, double wall);
/* Makes the folder (0700) with logs/ (0700) and ckpt/ (as umask says: to share checkpoints, the folder above is
 * opened). again: it may have a run in it already (a resume); otherwise
 * that is an error. */
int rundir_make(const char *path, int again, struct err *err);
/* Takes the folder for this process: a descriptor of DIR/lock to keep open until the job has ended, whatever way. -1:
 * err has why, such as a job that trains in it. -2: its file system has no locks. */
int rundir_lock(const char *path, struct err *err);
/* Replaces DIR/name (0600) whole (a temporary name, synced, renamed). */
int rundir_write(const char *path, const char *name, const void *data, size_t n, struct err *err);

#endif
