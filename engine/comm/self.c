/* A group of one rank: every collective is a copy. */
#include "engine/comm/core.h"
#include "engine/base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct block {
    struct block *next;
    void *p;
};

struct self {
    struct core core;
    struct block *blocks;
};

static int self_probe(const struct boot *boot, char why[256])
{
    if (boot->world == 1)
        return snprintf(why, 256, "one rank") < 0;
    snprintf(why, 256, "self is for one rank, not %d", boot->world);
    return -1;
}

static int self_group(struct core *c, const struct job *j)
{
    for (int i = 0; i < j->n; i++) {
        const struct coll *op = &j->op[i];
        size_t bytes = (size_t)coll_total(op, 1) * ds_dtype_bytes(op->dtype);

        if (op->op != COLL_BARRIER && op->op != COLL_BROADCAST && bytes && op->send != op->recv)
            memmove(op->recv, op->send, bytes);
    }
    return 0;
}

static struct comm *self_new(struct boot *boot, struct device *dev, int64_t timeout_ms)
{
    struct self *s = xcalloc(1, sizeof *s);

    core_init(&s->core, &comm_self, boot, dev, 0, 1, timeout_ms);
    s->core.group = self_group;
    return &s->core.base;
}

static int self_create(struct comm **out, struct boot *boot, struct device *dev, int64_t timeout_ms,
                       struct err *err)
{
    *out = self_new(boot, dev, timeout_ms);
    return 0;
}

static int self_split(struct comm **out, struct comm *parent, int color, struct err *err)
{
    struct core *c = (struct core *)parent;

    *out = color < 0 ? NULL : self_new(c->boot, parent->device, c->timeout_ms);
    return 0;
}

static void *self_alloc(struct comm *comm, size_t bytes, enum mem_class class, struct err *err)
{
    struct self *s = (struct self *)comm;
    void *p = comm->device->ops->alloc(comm->device, bytes, class, err);

    if (p) {
        struct block *b = xmalloc(sizeof *b);

        *b = (struct block){s->blocks, p};
        s->blocks = b;
    }
    return p;
}

static void self_destroy(struct comm *comm)
{
    struct self *s = (struct self *)comm;

    if (!s)
        return;
    while (s->blocks) {
        struct block *b = s->blocks;

        s->blocks = b->next;
        comm->device->ops->free(comm->device, b->p);
        free(b);
    }
    core_clear(&s->core);
    free(s);
}

const struct comm_ops comm_self = {
    .name = "self",
    .probe = self_probe,
    .create = self_create,
    .split = self_split,
    .alloc = self_alloc,
    .submit = core_submit,
    .poll = core_poll,
    .abort = core_abort,
    .destroy = self_destroy,
    .counters = core_counters,
};
