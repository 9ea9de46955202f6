/* A queue: see backlog.h. */
#include "launcher/backlog.h"

#include "engine/base/buf.h"

#include <string.h>

void backlog_add(struct backlog *b, int node, int rank, int stream, const char *data, size_t n)
{
    struct backlog_piece *p = xmalloc(sizeof *p + n);

    *p = (struct backlog_piece){.node = node, .rank = rank, .stream = stream, .n = n};
    if (n)
        memcpy(p->data, data, n);
    if (b->head)
        b->last->next = p;
    else
        b->head = p;
    b->last = p;
}

struct backlog_piece *backlog_take(struct backlog *b)
{
    struct backlog_piece *p = b->head;

    if (p)
        b->head = p->next;
    return p;
}
