/* What a program that brings an agent up says on its stderr: line by line while it runs, and its last words for the
 * error when it ends. Memory is bounded, whatever it says. */
#ifndef DS_SAID_H
#define DS_SAID_H

#include "engine/base/buf.h"

#define SAID_LINE_BYTES 4096 /* a longer line is given in parts */
#define SAID_TAIL_BYTES 1024 /* at least so much of the end is kept */

struct said {
    struct buf line, tail; /* the one under way; the last ones */
};

/* line (not NULL) gets each line without its end. Carriage returns are dropped. */
void said_feed(struct said *s, const char *data, size_t n, void (*line)(void *ctx, const char *line), void *ctx);
/* A last line without its end is one, too. */
void said_end(struct said *s, void (*line)(void *ctx, const char *line), void *ctx);
void said_clear(struct said *s);

#endif
