/* Gradients are summed over the data ranks: in stages 0 and 1 all at the end of a step, from stage 2 on a
 * flat's as soon as the last layer has given to it, which every micro-batch does. */
#include "engine/zero/zero_impl.h"

#include <string.h>

int zero_reduce(struct zero *z, double *sums, int n, double peak[2], struct err *err)
{
    const struct param_table *t = z->table;
    struct coll *group = z->group;
    int ops = 0;

    if (z->comm->size == 1)
        return 0;
    for (int f = 0; f < t->nflats && z->stage == 1; f++)
        group[ops++] = (struct coll){
            .op = COLL_REDUCE_SCATTER, .send = zero_grad(z, f, 0), .count = (int64_t)t->flat[f].slice,
            .recv = zero_grad(z, f, z->first), .dtype = DS_F32, .reduce = COLL_SUM,
            .class = CLASS_GRAD};
    if (z->stage == 0)
        group[ops++] = (struct coll){.op = COLL_ALL_REDUCE, .send = z->grad, .recv = z->grad,
                                     .count = (int64_t)t->total, .dtype = DS_F32,
                                     .reduce = COLL_SUM, .class = CLASS_GRAD};
    group[ops++] = (struct coll){.op = COLL_ALL_REDUCE, .send = sums, .recv = sums, .count = n,
                                 .dtype = DS_F64, .reduce = COLL_SUM, .class = CLASS_CONTROL};
    group[ops++] = (struct coll){.op = COLL_ALL_REDUCE, .send = peak, .recv = peak, .count = 2,
                                 .dtype = DS_F64, .reduce = COLL_MAX, .class = CLASS_CONTROL};
    z->dev->ops->event_done(z->dev->ops->record(zero_stream(z)), 1);
    return zero_run(z, group, ops, z->job->reduce_bucket / t->ranks, err);
}

/* What no layer writes: padding and fixed parameters. */
static void clear_gaps(void *arg)
{
    struct zero_slot *slot = arg;
    const struct param_table *t = slot->zero->table;
    const struct param_flat *f = &t->flat[slot->flat];
    float *g = (float *)slot->at;
    uint64_t end = 0;

    for (int i = f->first; i < f->first + f->ntensors; i++) {
        const struct param_tensor *x = &t->tensor[i];

        if (zero_fixed(x))
            continue;
        memset(g + end, 0, (x->offset - end) * sizeof *g);
        end = x->offset + x->numel;
    }
    memset(g + end, 0, (slot->elements - end) * sizeof *g);
}

static void add_slice(void *arg)
{
    struct zero_slot *slot = arg;
    struct zero *z = slot->zero;
    float *sum = zero_grad(z, slot->flat, z->first);
    uint64_t n = z->table->flat[slot->flat].slice;

    z->k->add(sum, sum, (float *)slot->at + (uint64_t)z->first * n, (int64_t)n, DS_F32, NULL);
}

int zero_scatter(struct zero *z, int flat, struct err *err)
{
    struct ds_stream *compute = z->dev->ops->stream(z->dev, STREAM_COMPUTE), *comm = zero_stream(z);
    struct zero_slot *slot = &z->grads.slot[z->flat[flat].grad_slot];
    uint64_t n = z->table->flat[flat].slice;
    float *g = (float *)slot->at;
    struct coll op = {.op = COLL_REDUCE_SCATTER, .send = g, .count = (int64_t)n,
                      .recv = z->adds ? g + (uint64_t)z->first * n : zero_grad(z, flat, z->first),
                      .dtype = DS_F32, .reduce = COLL_SUM, .class = CLASS_GRAD};

    z->dev->ops->run(compute, clear_gaps, slot);
    zero_order(z, compute, comm);
    if (z->comm->ops->submit(z->comm, &op, 1, comm, err) < 0)
        return -1;
    if (z->adds)
        z->dev->ops->run(comm, add_slice, slot);
    slot->last = z->dev->ops->record(comm);
    return 0;
}
