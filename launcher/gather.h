/* The output of one command on many hosts: kept per host and folded at the end, or given out line by line as it
 * comes. Pure: text goes out through a callback. */
#ifndef DS_GATHER_H
#define DS_GATHER_H

#include "engine/base/buf.h"

/* Kept of one host, and of all; what is beyond it is dropped, and said. */
#define GATHER_HOST_BYTES (64u << 20)
#define GATHER_ALL_BYTES (256u << 20)

struct gather;

/* names[i] is host i (borrowed). live: whole lines at once, "HOST: " in front. emit: stream 1 or 2. */
struct gather *gather_create(char *const *names, int n, int live,
                             void (*emit)(void *ctx, int stream, const char *text, size_t n), void *ctx);
void gather_destroy(struct gather *g); /* NULL is fine */

void gather_feed(struct gather *g, int host, int stream, const char *data, size_t n);
/* A host has ended, with this status and, when it did not end well, what is said of it ("" or NULL: nothing). Now
 * its output is compared: what is equal to that of an earlier host, bytes and status, is kept once. */
void gather_end(struct gather *g, int host, int status, const char *said);
/* Every host has ended: the outputs, each once under the list of its hosts (a single host's as it is, live: what
 * is unfinished), then what was said, one line for all hosts of which the same is said, into said. */
void gather_print(struct gather *g, struct buf *said);

#endif
