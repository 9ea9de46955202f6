/* Slots: buffers of the size of one flat. See zero.h. */
#include "engine/zero/zero_impl.h"

#include "engine/base/buf.h"

#include <stdlib.h>

static int is_free(const struct zero_pool *p, int i, uint64_t elements)
{
    return !p->slot[i].busy && p->slot[i].elements == elements;
}

static int add(struct zero *z, struct zero_pool *p, uint64_t elements)
{
    ARRAY_GROW(p->slot, p->n, p->cap);
    p->slot[p->n] = (struct zero_slot){.zero = z, .elements = elements};
    return p->n++;
}

int zero_slot_take(struct zero *z, struct zero_pool *p, int flat)
{
    uint64_t elements = zero_elements(z, flat);
    int at = -1;

    for (int i = 1; i <= p->n && at < 0; i++)
        if (is_free(p, (p->turn + i) % p->n, elements))
            at = (p->turn + i) % p->n;
    if (at < 0 && z->dry)
        at = add(z, p, elements);
    if (at < 0)
        return -1;
    if (p->slot[at].last)
        z->dev->ops->event_done(p->slot[at].last, 1);
    p->slot[at].last = NULL;
    p->slot[at].flat = flat;
    p->slot[at].busy = 1;
    p->turn = at;
    return at;
}

void zero_pool_double(struct zero *z, struct zero_pool *p, uint64_t limit)
{
    for (int i = 0, n = p->n; i < n; i++) {
        uint64_t elements = p->slot[i].elements;
        int slots = 0, flats = 0, first = 1;

        for (int j = 0; j < i; j++)
            first &= p->slot[j].elements != elements;
        for (int j = 0; j < n; j++)
            slots += p->slot[j].elements == elements;
        for (int f = 0; f < z->table->nflats; f++)
            flats += zero_elements(z, f) == elements;
        if (first && flats > slots && (uint64_t)(slots + 1) * elements <= limit)
            add(z, p, elements);
    }
}

static uint64_t slot_bytes(const struct zero_slot *s, size_t size)
{
    return (s->elements * size + 63) / 64 * 64;
}

uint64_t zero_pool_bytes(const struct zero_pool *p, size_t size)
{
    uint64_t n = 0;

    for (int i = 0; i < p->n; i++)
        n += slot_bytes(&p->slot[i], size);
    return n;
}

int zero_pool_alloc(struct zero *z, struct zero_pool *p, size_t size, struct err *err)
{
    char *at = p->n ? z->comm->ops->alloc(z->comm, zero_pool_bytes(p, size), MEM_BUFFER, err) : NULL;

    if (p->n && !at)
        return -1;
    for (int i = 0; i < p->n; i++) {
        p->slot[i].at = at;
        at += slot_bytes(&p->slot[i], size);
    }
    return 0;
}

void zero_pool_clear(struct zero_pool *p)
{
    free(p->slot);
}
