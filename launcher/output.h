/* What the ranks write, turned into whole lines with prefixes. Knows no thread and no descriptor: text goes
 * out through a callback. A rank's unfinished line is given out after a moment, and goes on where it stopped
 * when nobody else wrote since. */
#ifndef DS_OUTPUT_H
#define DS_OUTPUT_H

#include "engine/base/buf.h"

#include <stdint.h>

enum output_prefix { PREFIX_NONE, PREFIX_RANK, PREFIX_HOST };

#define OUTPUT_LINE_BYTES 16384 /* an unfinished line longer than this is given out at once */
#define OUTPUT_PARTIAL_MS 200   /* an unfinished line older than this, too */
#define OUTPUT_TAIL_LINES 20

struct output;

/* hosts[rank] names the rank's host (borrowed). emit: stream 1 or 2. */
struct output *output_create(int world, enum output_prefix prefix, const char *const *hosts,
                             void (*emit)(void *ctx, int stream, const char *text, size_t n), void *ctx);
void output_destroy(struct output *o); /* NULL is fine */

/* Bytes of a rank at time now_ms; n = 0: the stream ended. Complete lines are emitted in one call. */
void output_feed(struct output *o, int rank, int stream, const char *data, size_t n, int64_t now_ms);
/* A line of our own: begins a new line first when a partial one stands there. */
void output_own(struct output *o, int stream, const char *text, size_t n);
/* Gives out what has been unfinished for too long. Returns ms until the next call is due, -1: none. */
int64_t output_tick(struct output *o, int64_t now_ms);
/* The last lines of a rank, both streams in order of arrival. */
void output_tail(const struct output *o, int rank, struct buf *out);

#endif
