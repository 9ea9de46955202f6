/* The states of one rank: how they lie in memory, their first values, and weights from masters. See zero.h. */
#include "engine/zero/zero_impl.h"

#include "engine/base/buf.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static void *alloc_zeroed(struct device *dev, uint64_t n, size_t size, enum mem_class class,
                          struct err *err)
{
    void *p = dev->ops->alloc(dev, n * size, class, err);

    if (p)
        memset(p, 0, n * size);
    return p;
}

static uint64_t place_states(struct zero *z)
{
    uint64_t n = 0;

    z->at = xcalloc((size_t)z->table->nflats + 1, sizeof *z->at);
    for (int f = 0; f < z->table->nflats; f++) {
        z->at[f] = n;
        n += z->table->flat[f].slice * (uint64_t)z->nslices;
    }
    return n;
}

static int alloc_states(struct zero *z, struct err *err)
{
    uint64_t total = z->table->total, held = place_states(z);
    size_t row = (size_t)z->table->nflats + 1;

    z->group = xcalloc(row + 1, sizeof *z->group);
    z->partial = xcalloc(row * (size_t)z->table->ranks, sizeof *z->partial);
    z->trust = xcalloc((size_t)z->table->ntensors * 2 + 1, sizeof *z->trust);
    z->grad = z->comm->ops->alloc(z->comm, total * sizeof(float), MEM_GRAD, err);
    if (!z->grad)
        return -1;
    memset(z->grad, 0, total * sizeof(float));
    z->weight = z->comm->ops->alloc(z->comm, total * ds_dtype_bytes(z->dtype), MEM_PARAM, err);
    if (!z->weight)
        return -1;
    memset(z->weight, 0, total * ds_dtype_bytes(z->dtype));
    for (int k = z->dtype == DS_F32 ? ZERO_M : ZERO_W; k < ZERO_KINDS; k++) {
        if (!zero_has(z, (enum zero_kind)k))
            continue;
        z->state[k] = alloc_zeroed(z->dev, held, sizeof(float), MEM_OPTIM, err);
        if (!z->state[k])
            return -1;
    }
    return 0;
}

int zero_create(struct zero **out, const struct param_table *t, const struct kernels *k,
                struct device *dev, struct comm *comm, const struct job *job, enum ds_dtype dtype,
                struct err *err)
{
    struct zero *z = xcalloc(1, sizeof *z);
    int split = job->zero_stage >= 1;

    *z = (struct zero){.table = t, .job = job, .k = k, .dev = dev, .comm = comm, .dtype = dtype,
                       .optim = optim_of(job), .first = split ? comm->rank : 0,
                       .nslices = split ? 1 : t->ranks};
    if (alloc_states(z, err) < 0) {
        err_prefix(err, "model states of %llu parameters", (unsigned long long)t->numel);
        zero_destroy(z);
        return -1;
    }
    *out = z;
    return 0;
}

void zero_destroy(struct zero *z)
{
    if (!z)
        return;
    for (int k = 0; k < ZERO_KINDS; k++)
        z->dev->ops->free(z->dev, z->state[k]);
    free(z->at);
    free(z->group);
    free(z->partial);
    free(z->trust);
    free(z);
}

int zero_has(const struct zero *z, enum zero_kind kind)
{
    return kind == ZERO_W || optim_moment(z->job, kind == ZERO_M ? OPTIM_M : OPTIM_V);
}

float *zero_slice(const struct zero *z, enum zero_kind kind, int flat, int rank)
{
    const struct param_flat *f = &z->table->flat[flat];

    if (kind == ZERO_W && z->dtype == DS_F32)
        return (float *)z->weight + f->base + (uint64_t)rank * f->slice;
    return z->state[kind] + z->at[flat] + (uint64_t)(rank - z->first) * f->slice;
}

/* ---- first weights ---- */

#define INIT_BLOCK 65536

static void init_segment(const struct param_tensor *x, uint64_t seed, uint64_t lo, uint64_t hi,
                         float *at)
{
    int64_t blocks = (int64_t)((hi - lo + INIT_BLOCK - 1) / INIT_BLOCK);

#pragma omp parallel for schedule(dynamic)
    for (int64_t b = 0; b < blocks; b++) {
        uint64_t from = lo + (uint64_t)b * INIT_BLOCK, to = from + INIT_BLOCK;

        param_init_range(x, seed, from, to < hi ? to : hi, at + (from - lo));
    }
}

void zero_init(struct zero *z, uint64_t seed)
{
    const struct param_table *t = z->table;

    for (int f = 0; f < t->nflats; f++)
        for (int r = z->first; r < z->first + z->nslices; r++) {
            struct param_seg *seg;
            int n = param_segments(t, f, r, &seg);

            for (int s = 0; s < n; s++)
                init_segment(&t->tensor[seg[s].tensor], seed, seg[s].lo, seg[s].hi,
                             zero_slice(z, ZERO_W, f, r) + seg[s].at);
            free(seg);
        }
}

/* ---- weights ---- */

int zero_run(struct zero *z, const struct coll *group, int n, struct err *err)
{
    struct ds_stream *s = z->dev->ops->stream(z->dev, STREAM_COMPUTE);

    if (z->comm->ops->submit(z->comm, group, n, s, err) < 0)
        return -1;
    z->dev->ops->event_done(z->dev->ops->record(s), 1);
    return z->comm->ops->poll(z->comm, err);
}

int zero_gather(struct zero *z, struct err *err)
{
    const struct param_table *t = z->table;

    if (!zero_split(z))
        return 0;
    for (int f = 0; f < t->nflats; f++)
        z->group[f] = (struct coll){.op = COLL_ALL_GATHER, .count = (int64_t)t->flat[f].slice,
                                    .dtype = z->dtype, .send = zero_weight(z, f, z->first, 0),
                                    .recv = zero_weight(z, f, 0, 0), .class = CLASS_PARAM};
    return zero_run(z, z->group, t->nflats, err);
}

int zero_refresh(struct zero *z, struct err *err)
{
    const struct param_table *t = z->table;

    for (int f = 0; z->dtype != DS_F32 && f < t->nflats; f++)
        z->k->cast(zero_weight(z, f, z->first, 0), z->dtype, zero_slice(z, ZERO_W, f, z->first), DS_F32,
                   (int64_t)t->flat[f].slice * z->nslices, NULL);
    return zero_gather(z, err);
}

void zero_bytes(const struct job *job, uint64_t numel, enum ds_dtype dtype, int ranks, uint64_t out[MEM_CLASSES])
{
    int arrays = (dtype != DS_F32) + optim_moment(job, OPTIM_M) + optim_moment(job, OPTIM_V);


    memset(out, 0, sizeof *out * MEM_CLASSES);
    out[MEM_PARAM] = numel * ds_dtype_bytes(dtype);
    out[MEM_GRAD] = numel * 4;
    out[MEM_OPTIM] = numel * 4 * (uint64_t)arrays / (uint64_t)(job->zero_stage ? ranks : 1);
}
