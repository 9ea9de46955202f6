/* What the files of engine/zero share: see zero.h. */
#ifndef DS_ZERO_IMPL_H
#define DS_ZERO_IMPL_H

#include "engine/zero/zero.h"

/* Slice `rank` of a flat, one that is held: its reduced gradient, and element `at` of its weights of the
 * compute type. */
static inline float *zero_grad(const struct zero *z, int flat, int rank)
{
    const struct param_flat *f = &z->table->flat[flat];

    return z->grad + f->base + (uint64_t)rank * f->slice;
}

static inline void *zero_weight(const struct zero *z, int flat, int rank, uint64_t at)
{
    const struct param_flat *f = &z->table->flat[flat];

    return (char *)z->weight + (f->base + (uint64_t)rank * f->slice + at) * ds_dtype_bytes(z->dtype);
}

/* Does a rank hold its own slices only? */
static inline int zero_split(const struct zero *z)
{
    return z->nslices < z->table->ranks;
}

/* Never updated. */
static inline int zero_fixed(const struct param_tensor *x)
{
    return (x->flags & (DS_FROZEN | DS_BUFFER)) != 0;
}

/* Submits a group to the compute stream, waits for it. */
int zero_run(struct zero *, const struct coll *group, int n, struct err *);
/* From stage 1 on: every rank's slices of the weights to all. Collective. */
int zero_gather(struct zero *, struct err *);

#endif
