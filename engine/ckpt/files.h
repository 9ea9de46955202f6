/* Files and folders of checkpoints. Every write, fsync and rename passes a fault countdown
 * (fault.h) named write, fsync or rename. Inside engine/ckpt only. */
#ifndef DS_CKPT_FILES_H
#define DS_CKPT_FILES_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stdint.h>

/* A new file with these bytes, synced. An error names the file; the file may be left behind then.
 */
int file_write(const char *path, const void *data, size_t n, struct err *err);
/* The same under PATH.tmp, then renamed over path and the folder synced. */
int file_replace(const char *path, const void *data, size_t n, struct err *err);
int file_rename(const char *from, const char *to, struct err *err);
int folder_sync(const char *path, struct err *err);
int folder_make(const char *path, struct err *err); /* with its parents; may exist */
/* Removes a flat folder: the manifest first, so that what is left of it never passes for whole. 0
 * or -1. */
int folder_remove(const char *path, struct err *err);
/* Whole file, at most max bytes. */
int file_read(const char *path, size_t max, struct buf *out, struct err *err);

/* The step-N folders of a ckpt folder that have a manifest, oldest first (time of the manifest,
 * then N). */
struct step_folder {
    int64_t step, time_ns;
};
int step_list(const char *dir, struct step_folder **list); /* their number; *list owned */
/* Removes what crashed saves left, folders .step-*.tmp, and puts back a step-N.old that has no step-N. */
void step_clean(const char *dir);
/* "step-N" to N: 0 or -1. */
int step_parse(const char *name, int64_t *step);

#endif
