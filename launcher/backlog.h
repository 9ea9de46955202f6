/* Output of ranks that waits, as it came, until the terminal has taken what is before it. Prefixes make many times as
 * much of short lines: they are put in front when a line's turn comes, so what a slow terminal holds up is bounded by
 * the credit of the nodes. */
#ifndef DS_BACKLOG_H
#define DS_BACKLOG_H

#include <stddef.h>

struct backlog_piece {
    struct backlog_piece *next;
    int node, rank, stream;
    size_t n; /* 0: the stream ended */
    char data[];
};

struct backlog {
    struct backlog_piece *head, *last;
};

void backlog_add(struct backlog *b, int node, int rank, int stream, const char *data, size_t n); /* copies */
struct backlog_piece *backlog_take(struct backlog *b); /* the oldest, the caller frees it; NULL: none */

#endif
