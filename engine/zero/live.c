/* Stage 3: weights are gathered before a layer reads them and released after. See zero.h.
 *
 * After its use a flat stays gathered where it is read again within stage3_max_reuse_distance elements and
 * no more than stage3_max_live_parameters are; what the very next use reads always stays.
 *
 * With zero_hpz_partition_size near ranks keep a second copy, each its part, of what was gathered once; it is good
 * until the weights change.
 */
#include "engine/zero/zero_impl.h"

#include "engine/base/buf.h"

#include <string.h>

/* ---- who reads what ---- */

static void add_need(struct zero_need *n, int flat, int backward, int most)
{
    int i = 0;

    if (!n->flat) {
        n->flat = xcalloc((size_t)most, sizeof *n->flat);
        n->backward = xcalloc((size_t)most, sizeof *n->backward);
    }
    while (i < n->n && n->flat[i] != flat)
        i++;
    n->flat[i] = flat;
    n->backward[i] |= backward;
    n->n += i == n->n;
}

void zero_needs(struct zero *z)
{
    const struct param_table *t = z->table;

    z->need = xcalloc((size_t)t->nlayers + 1, sizeof *z->need);
    for (int f = 0; f < t->nflats; f++)
        z->flat[f].first = z->flat[f].last = t->flat[f].layer;
    for (int i = 0; i < t->ntensors; i++) {
        const struct param_tensor *x = &t->tensor[i];
        int at = t->flat_of[x->layer][x->param];
        struct zero_flat *f = &z->flat[at];

        f->first = x->layer > f->first ? x->layer : f->first;
        f->last = x->layer < f->last ? x->layer : f->last;
        if (!f->whole)
            add_need(&z->need[x->layer], at, !(x->flags & DS_FWD_ONLY), DS_MAX_PARAMS);
    }
}

/* Does the use read the i-th of its layer's flats? */
static int reads_nth(const struct layer_use *u, const struct zero_need *n, int i)
{
    return u->what & (USE_FORWARD | USE_AGAIN) || n->backward[i];
}

/* Does the use read gathered weights of the flat? */
static int reads(const struct zero *z, int use, int flat)
{
    const struct layer_use *u = &z->order->use[use];
    const struct zero_need *n = &z->need[u->layer];

    for (int i = 0; i < n->n; i++)
        if (n->flat[i] == flat)
            return reads_nth(u, n, i);
    return 0;
}

/* The i-th flat that a use reads, -1 at the end. */
static int nth(const struct zero *z, int use, int i)
{
    const struct layer_use *u = &z->order->use[use];
    const struct zero_need *n = &z->need[u->layer];

    for (int j = 0; j < n->n; j++)
        if (reads_nth(u, n, j) && i-- == 0)
            return n->flat[j];
    return -1;
}

/* Elements that the uses between this one and the flat's next read; the pass comes again after its end. */
static uint64_t distance(const struct zero *z, int use, int flat)
{
    uint64_t sum = 0;

    for (int v = use + 1; v <= use + z->uses && sum <= (uint64_t)z->job->max_reuse; v++) {
        if (reads(z, v % z->uses, flat))
            return sum;
        for (int i = 0, f; (f = nth(z, v % z->uses, i)) >= 0; i++)
            sum += zero_elements(z, f);
    }
    return sum;
}

/* ---- gather and release ---- */

/* This rank's part of the second copy. */
static void keep_second(void *arg)
{
    const struct zero_flat *f = arg;
    const struct zero *z = f->zero;
    size_t bytes = zero_near_part(z, (int)(f - z->flat)) * ds_dtype_bytes(z->dtype);

    memcpy(z->second + f->second * ds_dtype_bytes(z->dtype), f->from + (size_t)z->near->rank * bytes, bytes);
}

/* From all ranks the first time, then from the near ones where they keep a second copy. */
static int submit(struct zero *z, int flat, char *to, struct ds_stream *s, struct err *err)
{
    struct zero_flat *f = &z->flat[flat];
    struct comm *comm = f->has_second ? z->near : z->comm;
    struct coll op = {.op = COLL_ALL_GATHER, .recv = to, .dtype = z->dtype, .class = CLASS_PARAM};

    op.count = (int64_t)(f->has_second ? zero_near_part(z, flat) : z->table->flat[flat].slice);
    op.send = f->has_second ? z->second + f->second * ds_dtype_bytes(z->dtype)
                            : zero_weight(z, flat, z->first, 0);
    if (comm->ops->submit(comm, &op, 1, s, err) < 0)
        return -1;
    if (z->near && !f->has_second) {
        f->from = to;
        z->dev->ops->run(s, keep_second, f);
    }
    return 0;
}

static void count(struct zero *z, int flat)
{
    if (z->flat[flat].has_second)
        z->fetched += zero_near_part(z, flat) * (uint64_t)(z->nnear - 1);
    else
        z->fetched += z->table->flat[flat].slice * (uint64_t)(z->table->ranks - 1);
}

static int gather(struct zero *z, int flat, struct err *err)
{
    struct ds_stream *s = z->dry ? NULL : zero_stream(z);
    int at = zero_slot_take(z, &z->weights, flat);

    if (at < 0)
        return err_set(err, ERR_JOB_INTERNAL, "no buffer is free for the weights of %s",
                       z->table->tensor[z->table->flat[flat].first].name);
    z->flat[flat].weight_slot = at;
    z->live += zero_elements(z, flat);
    if (z->dry) {
        count(z, flat);
    } else {
        zero_order(z, z->dev->ops->stream(z->dev, STREAM_COMPUTE), s);
        if (submit(z, flat, z->weights.slot[at].at, s, err) < 0)
            return -1;
        z->flat[flat].ready = z->dev->ops->record(s);
    }
    z->flat[flat].has_second = z->nnear > 1;
    return 0;
}

static int prefetch(struct zero *z, int use, struct err *err)
{
    uint64_t ahead = 0;

    for (int v = use + 1; v < z->uses; v++)
        for (int i = 0, f; (f = nth(z, v, i)) >= 0; i++) {
            uint64_t n = zero_elements(z, f);

            if (z->flat[f].weight_slot >= 0)
                continue;
            ahead += n;
            if (ahead > (uint64_t)z->job->prefetch_bucket ||
                z->live + n > (uint64_t)z->job->max_live)
                return 0;
            if (gather(z, f, err) < 0)
                return -1;
        }
    return 0;
}

int zero_fetch(struct zero *z, int use, struct err *err)
{
    for (int i = 0, f; (f = nth(z, use, i)) >= 0; i++)
        if (z->flat[f].weight_slot < 0 && gather(z, f, err) < 0)
            return -1;
    for (int i = 0, f; (f = nth(z, use, i)) >= 0; i++)
        if (z->flat[f].ready) {
            zero_await(z, z->flat[f].ready, z->dev->ops->stream(z->dev, STREAM_COMPUTE));
            z->flat[f].ready = NULL;
        }
    return z->job->overlap_comm == OVERLAP_ON ? prefetch(z, use, err) : 0;
}

static void let_go(struct zero *z, int flat)
{
    struct zero_flat *f = &z->flat[flat];

    if (f->ready) /* fetched ahead and never read */
        z->dev->ops->event_done(f->ready, 1);
    f->ready = NULL;
    z->weights.slot[f->weight_slot].busy = 0;
    f->weight_slot = -1;
    z->live -= zero_elements(z, flat);
}

void zero_release(struct zero *z, int use)
{
    for (int i = 0, f; (f = nth(z, use, i)) >= 0; i++) {
        if (use + 1 < z->uses && reads(z, use + 1, f))
            continue;
        if (z->live > (uint64_t)z->job->max_live ||
            distance(z, use, f) > (uint64_t)z->job->max_reuse)
            let_go(z, f);
    }
}

void zero_forget(struct zero *z)
{
    zero_drop(z);
    for (int f = 0; f < z->table->nflats; f++)
        z->flat[f].has_second = 0;
}

void zero_drop(struct zero *z)
{
    for (int f = 0; z->flat && f < z->table->nflats; f++)
        if (z->flat[f].weight_slot >= 0)
            let_go(z, f);
}
