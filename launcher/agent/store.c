/* Values, descriptors and fences by name: see store.h. */
#include "launcher/agent/store.h"
#include "engine/base/buf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* FNV-1a: names come from our own ranks, so spread is all that is asked of it. */
static size_t bucket_of(const char *name)
{
    uint32_t h = 2166136261u;

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h % STORE_BUCKETS;
}

struct entry *store_entry(struct store *s, enum store_kind kind, const char *name)
{
    struct entry **b = &s->bucket[bucket_of(name)], *e;

    for (e = *b; e; e = e->next)
        if (e->kind == kind && !strcmp(e->name, name))
            return e;
    e = xcalloc(1, sizeof *e);
    e->kind = kind;
    e->name = xstrdup(name);
    e->fd = -1;
    e->next = *b;
    *b = e;
    return e;
}

static void entry_free(struct entry *e)
{
    if (e->fd >= 0)
        close(e->fd);
    free(e->name);
    free(e->value);
    free(e->waiter);
    free(e);
}

void store_forget(struct store *s, struct entry *e)
{
    struct entry **p = &s->bucket[bucket_of(e->name)];

    while (*p != e)
        p = &(*p)->next;
    *p = e->next;
    entry_free(e);
}

void store_clear(struct store *s)
{
    for (int i = 0; i < STORE_BUCKETS; i++)
        while (s->bucket[i]) {
            struct entry *e = s->bucket[i];

            s->bucket[i] = e->next;
            entry_free(e);
        }
}

int entry_wait(struct entry *e, int rank, uint32_t id)
{
    for (int i = 0; e->kind == STORE_FENCE && i < e->nwaiters; i++)
        if (e->waiter[i].rank == rank)
            return -1;
    ARRAY_GROW(e->waiter, e->nwaiters, e->cap);
    e->waiter[e->nwaiters++] = (struct waiter){rank, id};
    return 0;
}

void entry_set(struct entry *e, const void *value, size_t n)
{
    free(e->value);
    e->value = xmalloc(n);
    if (n)
        memcpy(e->value, value, n);
    e->n = n;
    e->have = 1;
}
