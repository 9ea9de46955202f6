/* A thread that writes: the loop hands it bytes and never waits for a terminal or a disk. What was written is
 * counted per node, so that the loop can give credit for it. */
#ifndef DS_WRITER_H
#define DS_WRITER_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct writer;
struct sink; /* a file or descriptor of one writer; lives as long as the writer */

/* Called from the loop: bytes tagged with node have been written (or could not be). broken: a write to a descriptor
 * sink failed with error (EPIPE: nobody reads), once for each; what is put into it later is dropped. */
struct writer_events {
    void (*done)(void *ctx, int node, size_t bytes);
    void (*broken)(void *ctx, int fd, int error);
};

/* NULL: no thread can be made. */
struct writer *writer_create(uv_loop_t *loop, int nodes, const struct writer_events *events, void *ctx,
                             struct err *err);
/* A descriptor that stays the caller's. */
struct sink *writer_fd(struct writer *w, int fd);
/* A file to append to, opened (with the folders above it) by the first put, even one of no bytes. A failure to open or
 * write is told once, as a line on stderr, and its later bytes are dropped. path is copied. */
struct sink *writer_file(struct writer *w, const char *path);
/* Closes the file's descriptor behind what is queued; a later put opens it again. */
void writer_file_ends(struct writer *w, struct sink *s);
/* Queues a copy. tag_bytes are reported as done for node when these are written; node -1: not reported. */
void writer_put(struct writer *w, struct sink *s, const void *data, size_t n, int node,
                size_t tag_bytes);
/* The same without a copy: takes the buffer's memory, which is empty then. */
void writer_give(struct writer *w, struct sink *s, struct buf *b, int node, size_t tag_bytes);
/* The live line below all output of descriptor sinks (a terminal): "" takes it away. */
void writer_status(struct writer *w, int fd, const char *text);
/* errno of a write to a descriptor sink that failed otherwise than for want of a reader (EPIPE); 0: none did. */
int writer_error(struct writer *w);
/* Bytes queued and not yet written. */
size_t writer_pending(struct writer *w);
/* Waits up to timeout_ms (-1: for ever) for everything to be written. 0, or -1 when it was not. */
int writer_flush(struct writer *w, int64_t timeout_ms);
/* Ends the thread when it can be ended (a write that hangs for ever keeps it, and its memory, until the
 * process ends). The loop must run once more for its handle to close. NULL is fine. */
void writer_destroy(struct writer *w);

#endif
