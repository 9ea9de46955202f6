/* What surrounds a layer's work from stage 2 on: its weights are fetched, its gradients get a place and are
 * scattered. See zero.h.
 *
 * The host calls in the order of the work on the compute stream. Collectives go to zero_stream; with overlap
 * that is another stream, and events keep the two apart: a gather waits for the layers that had its slot, a
 * layer for its gather, a reduction for the layer, a layer for the last reduction out of its slot.
 */
#include "engine/zero/zero_impl.h"

#include "engine/base/buf.h"
#include "engine/base/clock.h"

struct ds_stream *zero_stream(const struct zero *z)
{
    return z->dev->ops->stream(z->dev, z->stage >= 2 && z->job->overlap_comm == OVERLAP_ON ? STREAM_COMM
                                                                                         : STREAM_COMPUTE);
}

void zero_await(struct zero *z, struct ds_event *e, struct ds_stream *after)
{
    int n = 0;

    z->dev->ops->wait(after, e);
    ARRAY_GROW(z->event, z->nevents, z->cap_events);
    z->event[z->nevents++] = e;
    for (int i = 0; i < z->nevents; i++)
        if (!z->dev->ops->event_done(z->event[i], 0))
            z->event[n++] = z->event[i];
    z->nevents = n;
}

void zero_order(struct zero *z, struct ds_stream *before, struct ds_stream *after)
{
    if (before != after)
        zero_await(z, z->dev->ops->record(before), after);
}

/* ---- gradients ---- */

static int give_place(struct zero *z, int layer, struct err *err)
{
    for (int f = 0; f < z->table->nflats; f++) {
        int at;

        if (layer != z->flat[f].first)
            continue;
        at = zero_slot_take(z, &z->grads, f);
        if (at < 0)
            return err_set(err, ERR_JOB_INTERNAL, "no buffer is free for the gradients of %s",
                           z->table->tensor[z->table->flat[f].first].name);
        z->flat[f].grad_slot = at;
    }
    return 0;
}

static int scatter(struct zero *z, int layer, struct err *err)
{
    for (int f = 0; f < z->table->nflats; f++) {
        if (layer != z->flat[f].last)
            continue;
        if (!z->dry && zero_scatter(z, f, err) < 0)
            return -1;
        z->grads.slot[z->flat[f].grad_slot].busy = 0;
        z->flat[f].grad_slot = -1;
    }
    return 0;
}

/* ---- a pass ---- */

void zero_begin(struct zero *z, int training)
{
    int uses = training ? z->order->n : z->order->nlayers;

    if (uses != z->uses)
        zero_drop(z);
    z->uses = uses;
}

void zero_begin_backward(struct zero *z, int adds)
{
    z->adds = adds;
}

static void bind(struct zero *z, int layer, void **w, struct ds_grad *g)
{
    const struct param_table *t = z->table;

    for (int i = 0; i < t->nparams[layer]; i++) {
        const struct zero_flat *f = &z->flat[t->flat_of[layer][i]];
        uint64_t at = t->at[layer][i] - t->flat[t->flat_of[layer][i]].base;
        char *weights = f->whole ? zero_weight(z, t->flat_of[layer][i], 0, 0)
                        : f->weight_slot >= 0 ? z->weights.slot[f->weight_slot].at : NULL;

        w[i] = weights ? weights + at * ds_dtype_bytes(z->dtype) : NULL;
        if (f->grad_slot >= 0)
            g[i].data = (float *)z->grads.slot[f->grad_slot].at + at;
    }
}

/* The clock is looked at by the compute stream itself: where it runs behind the host, only its own waiting
 * counts. */
static void wait_begins(void *arg)
{
    struct zero *z = arg;

    z->wait_from = clock_ns();
}

static void wait_ends(void *arg)
{
    struct zero *z = arg;

    z->wait_ns += clock_ns() - z->wait_from;
}

static void stamp(struct zero *z, void (*fn)(void *))
{
    if (!z->dry)
        z->dev->ops->run(z->dev->ops->stream(z->dev, STREAM_COMPUTE), fn, z);
}

int zero_enter(struct zero *z, int use, void **w, struct ds_grad *g, struct err *err)
{
    const struct layer_use *u = &z->order->use[use];

    stamp(z, wait_begins);
    if (zero_fetch(z, use, err) < 0 || (u->what & USE_BACKWARD && give_place(z, u->layer, err) < 0))
        return -1;
    stamp(z, wait_ends);
    if (!z->dry)
        bind(z, u->layer, w, g);
    return 0;
}

int zero_leave(struct zero *z, int use, struct err *err)
{
    const struct layer_use *u = &z->order->use[use];

    stamp(z, wait_begins);
    zero_release(z, use);
    if (u->what & USE_BACKWARD && scatter(z, u->layer, err) < 0)
        return -1;
    stamp(z, wait_ends);
    return 0;
}

static void walk_pass(struct zero *z, int training)
{
    struct err err = ERR_INIT;

    zero_begin(z, training);
    for (int use = 0; use < z->uses; use++) {
        zero_enter(z, use, NULL, NULL, &err);
        zero_leave(z, use, &err);
    }
}

void zero_walk_step(struct zero *z, int64_t n)
{
    z->dry = 1;
    z->fetched = 0;
    for (int64_t i = 0; i < n; i++)
        walk_pass(z, 1);
    zero_forget(z);
    z->dry = 0;
}

/* Two micro-batches from nothing and from what they left, two evaluations likewise. */
void zero_walk(struct zero *z)
{
    zero_walk_step(z, 2);
    z->dry = 1;
    walk_pass(z, 0);
    walk_pass(z, 0);
    zero_forget(z);
    z->dry = 0;
    if (z->job->overlap_comm == OVERLAP_ON)
        zero_pool_double(z, &z->grads, (uint64_t)z->job->reduce_bucket);
}
