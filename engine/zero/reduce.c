/* Gradients are summed over the data ranks. */
#include "engine/zero/zero_impl.h"

int zero_reduce(struct zero *z, double *sums, int n, double peak[2], struct err *err)
{
    const struct param_table *t = z->table;
    struct coll *group = z->group;
    int ops = 0;

    if (z->comm->size == 1)
        return 0;
    for (int f = 0; f < t->nflats && zero_split(z); f++) {
        float *g = z->grad + t->flat[f].base;

        group[ops++] = (struct coll){
            .op = COLL_REDUCE_SCATTER, .send = g, .count = (int64_t)t->flat[f].slice,
            .recv = g + (uint64_t)z->first * t->flat[f].slice, .dtype = DS_F32,
            .reduce = COLL_SUM, .class = CLASS_GRAD};
    }
    if (!zero_split(z))
        group[ops++] = (struct coll){.op = COLL_ALL_REDUCE, .send = z->grad, .recv = z->grad,
                                     .count = (int64_t)t->total, .dtype = DS_F32,
                                     .reduce = COLL_SUM, .class = CLASS_GRAD};
    group[ops++] = (struct coll){.op = COLL_ALL_REDUCE, .send = sums, .recv = sums, .count = n,
                                 .dtype = DS_F64, .reduce = COLL_SUM, .class = CLASS_CONTROL};
    group[ops++] = (struct coll){.op = COLL_ALL_REDUCE, .send = peak, .recv = peak, .count = 2,
                                 .dtype = DS_F64, .reduce = COLL_MAX, .class = CLASS_CONTROL};
    return zero_run(z, group, ops, err);
}
