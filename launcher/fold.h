/* Equal lines of many ranks, said once: a line waits a moment for the same line of others. Pure; output.c feeds it and
 * prints what it gives. Order: a rank's lines come out in the order in which it wrote them, whoever shares them. */
#ifndef DS_FOLD_H
#define DS_FOLD_H

#include "engine/base/buf.h"

#include <stdint.h>

#define FOLD_MS 250               /* a line waits so long for one more rank that says it */
#define FOLD_MAX_MS 1000          /* and so long in all */
#define FOLD_BYTES (4u << 20)     /* of lines that wait: beyond it the oldest go at once */

struct fold;

/* rank[n]: who wrote the line, ascending. */
typedef void fold_emit(void *ctx, int stream, const int *rank, int n, const char *text, size_t len);

struct fold *fold_create(int world, fold_emit *emit, void *ctx);
void fold_destroy(struct fold *f); /* NULL is fine; what waits is dropped */
/* A whole line without its end. */
void fold_line(struct fold *f, int rank, int stream, const char *text, size_t len, int64_t now_ms);
void fold_over(struct fold *f, int rank);  /* this rank will write no more: nobody waits for it */
void fold_until(struct fold *f, int rank); /* out with everything up to the last line of this rank */
void fold_tick(struct fold *f, int64_t now_ms);
void fold_flush(struct fold *f);

/* Ascending numbers as "0-3,8,10-11". */
void ranks_print(const int *rank, int n, struct buf *out);

#endif
