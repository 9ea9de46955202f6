/* What the files of engine/zero share: see zero.h. */
#ifndef DS_ZERO_IMPL_H
#define DS_ZERO_IMPL_H

#include "engine/zero/zero.h"

/* Does a rank hold its own slices only? */
static inline int zero_split(const struct zero *z)
{
    return z->stage >= 1;
}

/* Elements of a flat that one of the near ranks keeps. */
static inline uint64_t zero_near_part(const struct zero *z, int flat)
{
    return z->table->flat[flat].slice * (uint64_t)(z->table->ranks / z->nnear);
}

/* Elements of a flat with all its slices. */
static inline uint64_t zero_elements(const struct zero *z, int flat)
{
    return z->table->flat[flat].slice * (uint64_t)z->table->ranks;
}

/* Slice `rank` of a flat, one that is held: its reduced gradient, and element `at` of its weights of the
 * compute type. */
static inline float *zero_grad(const struct zero *z, int flat, int rank)
{
    return z->grad + z->flat[flat].grad +
           (uint64_t)(z->stage >= 2 ? rank - z->first : rank) * z->table->flat[flat].slice;
}

static inline void *zero_weight(const struct zero *z, int flat, int rank, uint64_t at)
{
    const struct zero_flat *f = &z->flat[flat];
    uint64_t slice = (uint64_t)(f->whole ? rank : rank - z->first) * z->table->flat[flat].slice;

    return (char *)z->weight + (f->weight + slice + at) * ds_dtype_bytes(z->dtype);
}

/* Never updated. */
static inline int zero_fixed(const struct param_tensor *x)
{
    return (x->flags & (DS_FROZEN | DS_BUFFER)) != 0;
}

/* ---- zero.c ---- */

/* Submits operations to the compute stream, as one group up to `bucket` counted elements, waits for them. */
int zero_run(struct zero *, const struct coll *group, int n, int64_t bucket, struct err *);
/* From stage 1 on: every rank's slices of the weights to all. Collective. */
int zero_gather(struct zero *, struct err *);

/* ---- slots.c ---- */

/* A free slot of so many elements for a flat; in the dry walk one is made where none is free. Index, -1:
 * none. */
int zero_slot_take(struct zero *, struct zero_pool *, int flat);
/* One more slot of every size that more flats have than slots, where all of a size stay within `limit`
 * elements: while one is reduced the next is filled. */
void zero_pool_double(struct zero *, struct zero_pool *, uint64_t limit);
/* Memory of all slots, `size` bytes an element. */
uint64_t zero_pool_bytes(const struct zero_pool *, size_t size);
int zero_pool_alloc(struct zero *, struct zero_pool *, size_t size, struct err *);
void zero_pool_clear(struct zero_pool *);

/* ---- live.c: gathered weights ---- */

void zero_needs(struct zero *); /* who reads what, from the table */
int zero_fetch(struct zero *, int use, struct err *);
void zero_release(struct zero *, int use);
void zero_drop(struct zero *);   /* all that is gathered */
void zero_forget(struct zero *); /* second copies too: the weights have changed */

/* ---- layers.c: what surrounds a layer's work ---- */

/* The stream of collectives beside the work of layers: without overlap the compute stream. */
struct ds_stream *zero_stream(const struct zero *);
/* Work given to `after` from now on waits for what `before` has now. */
void zero_order(struct zero *, struct ds_stream *before, struct ds_stream *after);
/* The event is waited for by `after`, and freed when it is reached. */
void zero_await(struct zero *, struct ds_event *, struct ds_stream *after);
/* Walks through passes without doing anything: slots are counted, and with the second the weights fetched by n
 * micro-batches of a step. */
void zero_walk(struct zero *);
void zero_walk_step(struct zero *, int64_t n);

/* ---- reduce.c ---- */

/* The gradient of a flat in its slot to the owners of its slices; the slot is free afterwards. */
int zero_scatter(struct zero *, int flat, struct err *);

#endif
