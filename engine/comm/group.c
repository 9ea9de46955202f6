/* The backends thread and host: who is in the group, and what comm.h asks for. See group.h. */
#include "engine/comm/group.h"
#include "engine/base/buf.h"
#include "engine/base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int run_group(struct core *core, const struct job *job)
{
    struct group *g = (struct group *)core;

    pairs_begin(g);
    for (int i = 0; i < job->n; i++)
        if (job->op[i].op == COLL_SEND || job->op[i].op == COLL_RECV ||
            job->op[i].op == COLL_ALL_TO_ALL)
            pairs_add(g, &job->op[i]);
    for (int i = 0; i < job->n; i++)
        if (job->op[i].op != COLL_SEND && job->op[i].op != COLL_RECV &&
            job->op[i].op != COLL_ALL_TO_ALL && collective(g, &job->op[i]))
            return -1;
    return pairs_finish(g);
}

/* Ranks of this node, and the chain of runs over all. */
static void layout(struct group *g)
{
    int size = g->core.base.size, me = g->core.base.rank, smallest = size;

    for (int r = 0; r < size; r++) {
        int here = 0;

        g->seat_of[r] = -1;
        if (g->node_of[r] == g->node_of[me]) {
            g->seat_of[r] = g->nlocal;
            g->local[g->nlocal++] = r;
        }
        if (r == 0 || g->node_of[r] != g->node_of[r - 1])
            g->run[g->nruns++] = (struct run){r, r, g->node_of[r]};
        g->run[g->nruns - 1].end = r + 1;
        for (int i = 0; i < size; i++)
            here += g->node_of[i] == g->node_of[r];
        smallest = here < smallest ? here : smallest;
    }
    g->seat = g->seat_of[me];
    g->lanes = smallest;
}

static void *numbers(int n, size_t bytes)
{
    return xcalloc((size_t)n + 1, bytes);
}

/* A group of the given ranks of the boot (copied); not yet connected. */
static struct group *group_new(const struct comm_ops *ops, struct boot *boot, struct device *dev,
                               const int *world, int size, int rank, int64_t timeout_ms, int thread)
{
    struct group *g = xcalloc(1, sizeof *g);

    core_init(&g->core, ops, boot, dev, rank, size, timeout_ms);
    g->core.group = run_group;
    g->thread = thread;
    g->epoll = -1;
    g->world = numbers(size, sizeof *g->world);
    g->node_of = numbers(size, sizeof *g->node_of);
    g->local = numbers(size, sizeof *g->local);
    g->seat_of = numbers(size, sizeof *g->seat_of);
    g->seen = numbers(size, sizeof *g->seen);
    g->run = numbers(size, sizeof *g->run);
    g->first = numbers(size, sizeof *g->first);
    g->in = numbers(size, sizeof *g->in);
    g->out = numbers(size, sizeof *g->out);
    g->in_ref = numbers(size, sizeof *g->in_ref);
    g->out_ref = numbers(size, sizeof *g->out_ref);
    g->src = numbers(size, sizeof *g->src);
    g->dst = numbers(size, sizeof *g->dst);
    for (int r = 0; r < size; r++) {
        g->world[r] = world[r];
        g->node_of[r] = thread ? 0 : boot->node_of[world[r]];
    }
    layout(g);
    g->pairs = pairs_create(g);
    return g;
}

static int group_open(struct group *g, struct err *err)
{
    int links = (g->nruns - 1) * g->lanes;

    g->hash = hash64(g->id, strlen(g->id));
    if (region_open(g, err))
        return -1;
    g->core.wake = group_wake;
    if (g->nruns > 1) {
        g->mesh = numbers(g->core.base.size, sizeof *g->mesh);
        g->link = numbers(links, sizeof *g->link);
        for (int r = 0; r < g->core.base.size; r++)
            g->mesh[r] = -1;
        for (int i = 0; i < links; i++)
            g->link[i] = -1;
        if (net_open(g, err))
            return -1;
        g->chain = chain_create(g);
        if (g->core.base.size == 2)
            g->swap = swap_create();
    }
    g->counted = region_part(g) + chain_bytes(g->chain) + (g->swap ? SLOT_BYTES : 0);
    device_count(g->core.base.device, MEM_COMM, (int64_t)g->counted);
    return 0;
}

static void group_destroy(struct comm *comm)
{
    struct group *g = (struct group *)comm;

    if (!g)
        return;
    device_count(g->core.base.device, MEM_COMM, -(int64_t)g->counted);
    chain_destroy(g->chain);
    swap_destroy(g->swap);
    net_close(g);
    pairs_destroy(g->pairs);
    segments_release(g->segments, g);
    region_close(g);
    core_clear(&g->core);
    free(g->world);
    free(g->node_of);
    free(g->local);
    free(g->seat_of);
    free(g->seen);
    free(g->run);
    free(g->first);
    free(g->in);
    free(g->out);
    free(g->in_ref);
    free(g->out_ref);
    free(g->src);
    free(g->dst);
    free(g->mesh);
    free(g->link);
    free(g);
}

static int create(struct comm **out, const struct comm_ops *ops, struct boot *boot,
                  struct device *dev, int64_t timeout_ms, int thread, struct err *err)
{
    int *world = numbers(boot->world, sizeof *world);
    struct group *g;

    for (int r = 0; r < boot->world; r++)
        world[r] = r;
    g = group_new(ops, boot, dev, world, boot->world, boot->rank, timeout_ms, thread);
    free(world);
    snprintf(g->id, sizeof g->id, "comm");
    g->segments = segments_create(boot->world, boot->rank, dev);
    if (group_open(g, err)) {
        err_prefix(err, "cannot connect the ranks of the job");
        group_destroy(&g->core.base);
        return -1;
    }
    *out = &g->core.base;
    return 0;
}

static int thread_create(struct comm **out, struct boot *boot, struct device *dev,
                         int64_t timeout_ms, struct err *err)
{
    return create(out, &comm_thread, boot, dev, timeout_ms, 1, err);
}

static int host_create(struct comm **out, struct boot *boot, struct device *dev, int64_t timeout_ms,
                       struct err *err)
{
    return create(out, &comm_host, boot, dev, timeout_ms, 0, err);
}

static struct segments *segments_share(struct segments *s)
{
    pthread_mutex_lock(&s->lock);
    s->users++;
    pthread_mutex_unlock(&s->lock);
    return s;
}

/* The colors of all ranks come by an all-gather of the parent (class control). */
static int group_split(struct comm **out, struct comm *parent, int color, struct err *err)
{
    struct group *p = (struct group *)parent, *g;
    int64_t mine = color, *all = numbers(parent->size, sizeof *all);
    int *world = numbers(parent->size, sizeof *world), n = 0, rank = 0, rc = 0;
    struct coll gather = {.op = COLL_ALL_GATHER,
                          .send = &mine,
                          .recv = all,
                          .count = 1,
                          .dtype = DS_I64,
                          .class = CLASS_CONTROL};

    *out = NULL;
    p->splits++;
    rc = comm_run(parent, &gather, err);
    for (int r = 0; r < parent->size && rc == 0; r++)
        if (all[r] == color) {
            rank = r == parent->rank ? n : rank;
            world[n++] = p->world[r];
        }
    if (rc == 0 && color >= 0) {
        g = group_new(parent->ops, p->core.boot, parent->device, world, n, rank, p->core.timeout_ms,
                      p->thread);
        if (snprintf(g->id, sizeof g->id, "%s.%d.%d", p->id, p->splits, color) >= (int)sizeof g->id)
            rc = err_set(err, ERR_JOB_INTERNAL, "communicators are split too often: \"%s\"", g->id);
        g->segments = segments_share(p->segments);
        if (rc == 0)
            rc = group_open(g, err);
        if (rc)
            group_destroy(&g->core.base);
        else
            *out = &g->core.base;
    }
    free(all);
    free(world);
    return rc;
}

static int thread_probe(const struct boot *boot, char why[256])
{
    if (boot_is_world(boot) && boot->nodes == 1)
        return snprintf(why, 256, "%d ranks in this process", boot->world) < 0;
    snprintf(why, 256, "thread is for ranks in one process");
    return -1;
}

static int host_probe(const struct boot *boot, char why[256])
{
    if (boot->nodes > 1 && !boot->address) {
        snprintf(why, 256, "this node has no address that its peers know");
        return -1;
    }
    return snprintf(why, 256, "shared memory inside a node, TCP between nodes") < 0;
}

#define GROUP_OPS(NAME, PROBE, CREATE)                                                       \
    {                                                                                        \
        .name = NAME, .probe = PROBE, .create = CREATE, .split = group_split,                \
        .alloc = group_alloc, .submit = core_submit, .poll = core_poll, .abort = core_abort, \
        .destroy = group_destroy, .counters = core_counters                                  \
    }

const struct comm_ops comm_thread = GROUP_OPS("thread", thread_probe, thread_create);
const struct comm_ops comm_host = GROUP_OPS("host", host_probe, host_create);
