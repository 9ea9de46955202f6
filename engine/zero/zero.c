/* Model states of one rank: see zero.h. */
#include "engine/zero/zero.h"

#include "engine/base/buf.h"

#include <math.h>
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
    z->grad = z->comm->ops->alloc(z->comm, total * sizeof(float), MEM_GRAD, err);
    if (!z->grad)
        return -1;
    memset(z->grad, 0, total * sizeof(float));
    z->weight = z->comm->ops->alloc(z->comm, total * ds_dtype_bytes(z->dtype), MEM_PARAM, err);
    if (!z->weight)
        return -1;
    memset(z->weight, 0, total * ds_dtype_bytes(z->dtype));
    for (int k = z->dtype == DS_F32 ? ZERO_M : ZERO_W; k < ZERO_KINDS; k++) {
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
                       .first = split ? comm->rank : 0, .nslices = split ? 1 : t->ranks};
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
    free(z);
}

float *zero_slice(const struct zero *z, enum zero_kind kind, int flat, int rank)
{
    const struct param_flat *f = &z->table->flat[flat];

    if (kind == ZERO_W && z->dtype == DS_F32)
        return (float *)z->weight + f->base + (uint64_t)rank * f->slice;
    return z->state[kind] + z->at[flat] + (uint64_t)(rank - z->first) * f->slice;
}

static void *weight_at(const struct zero *z, uint64_t at)
{
    return (char *)z->weight + at * ds_dtype_bytes(z->dtype);
}

static int is_split(const struct zero *z)
{
    return z->nslices < z->table->ranks;
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

/* ---- collectives ---- */

static int run(struct zero *z, const struct coll *group, int n, struct err *err)
{
    struct ds_stream *s = z->dev->ops->stream(z->dev, STREAM_COMPUTE);

    if (z->comm->ops->submit(z->comm, group, n, s, err) < 0)
        return -1;
    z->dev->ops->event_done(z->dev->ops->record(s), 1);
    return z->comm->ops->poll(z->comm, err);
}

static int gather_weights(struct zero *z, struct err *err)
{
    const struct param_table *t = z->table;

    if (!is_split(z))
        return 0;
    for (int f = 0; f < t->nflats; f++) {
        const struct param_flat *flat = &t->flat[f];

        z->group[f] = (struct coll){
            .op = COLL_ALL_GATHER, .count = (int64_t)flat->slice, .dtype = z->dtype,
            .send = weight_at(z, flat->base + (uint64_t)z->first * flat->slice),
            .recv = weight_at(z, flat->base), .class = CLASS_PARAM};
    }
    return run(z, z->group, t->nflats, err);
}

int zero_refresh(struct zero *z, struct err *err)
{
    const struct param_table *t = z->table;

    for (int f = 0; z->dtype != DS_F32 && f < t->nflats; f++)
        z->k->cast(weight_at(z, t->flat[f].base + (uint64_t)z->first * t->flat[f].slice), z->dtype,
                   zero_slice(z, ZERO_W, f, z->first), DS_F32,
                   (int64_t)t->flat[f].slice * z->nslices, NULL);
    return gather_weights(z, err);
}

int zero_reduce(struct zero *z, double *sums, int n, double peak[2], struct err *err)
{
    const struct param_table *t = z->table;
    struct coll *group = z->group;
    int ops = 0;

    if (z->comm->size == 1)
        return 0;
    for (int f = 0; f < t->nflats && is_split(z); f++) {
        float *g = z->grad + t->flat[f].base;

        group[ops++] = (struct coll){
            .op = COLL_REDUCE_SCATTER, .send = g, .count = (int64_t)t->flat[f].slice,
            .recv = g + (uint64_t)z->first * t->flat[f].slice, .dtype = DS_F32,
            .reduce = COLL_SUM, .class = CLASS_GRAD};
    }
    if (!is_split(z))
        group[ops++] = (struct coll){.op = COLL_ALL_REDUCE, .send = z->grad, .recv = z->grad,
                                     .count = (int64_t)t->total, .dtype = DS_F32,
                                     .reduce = COLL_SUM, .class = CLASS_GRAD};
    group[ops++] = (struct coll){.op = COLL_ALL_REDUCE, .send = sums, .recv = sums, .count = n,
                                 .dtype = DS_F64, .reduce = COLL_SUM, .class = CLASS_CONTROL};
    group[ops++] = (struct coll){.op = COLL_ALL_REDUCE, .send = peak, .recv = peak, .count = 2,
                                 .dtype = DS_F64, .reduce = COLL_MAX, .class = CLASS_CONTROL};
    return run(z, group, ops, err);
}

/* ---- norm ---- */

static int is_fixed(const struct param_tensor *x)
{
    return (x->flags & (DS_FROZEN | DS_BUFFER)) != 0;
}

/* The first tensor of a flat with a value that is not finite, among the slices held. */
static const char *bad_tensor(const struct zero *z, int f)
{
    const struct param_flat *flat = &z->table->flat[f];
    const char *name = NULL;

    for (int r = z->first; r < z->first + z->nslices && !name; r++) {
        const float *g = z->grad + flat->base + (uint64_t)r * flat->slice;
        struct param_seg *seg;
        int n = param_segments(z->table, f, r, &seg);

        for (int s = 0; s < n && !name; s++)
            for (uint64_t i = 0; i < seg[s].hi - seg[s].lo && !name; i++)
                if (!isfinite(g[seg[s].at + i]))
                    name = z->table->tensor[seg[s].tensor].name;
        free(seg);
    }
    return name;
}

/* Frozen gradients count nowhere. */
static void clear_fixed(struct zero *z)
{
    const struct param_table *t = z->table;

    for (int f = 0; f < t->nflats; f++)
        for (int i = t->flat[f].first; i < t->flat[f].first + t->flat[f].ntensors; i++)
            if (is_fixed(&t->tensor[i]))
                memset(z->grad + t->flat[f].base + t->tensor[i].offset, 0,
                       t->tensor[i].numel * sizeof(float));
}

/* partial[rank][flat], and partial[rank][nflats] = number of bad slices. */
static int partial_sums(struct zero *z, double *partial, const char **tensor, struct err *err)
{
    const struct param_table *t = z->table;
    size_t row = (size_t)t->nflats + 1;
    struct coll all = {.op = COLL_ALL_GATHER, .send = partial + (size_t)z->first * row,
                       .recv = partial, .count = (int64_t)row, .dtype = DS_F64,
                       .class = CLASS_CONTROL};

    for (int r = z->first; r < z->first + z->nslices; r++)
        for (int f = 0; f < t->nflats; f++) {
            int32_t not_finite = 0;

            z->k->sumsq(&partial[(size_t)r * row + (size_t)f], &not_finite,
                        z->grad + t->flat[f].base + (uint64_t)r * t->flat[f].slice,
                        (int64_t)t->flat[f].slice, NULL);
            if (not_finite && !*tensor)
                *tensor = bad_tensor(z, f);
            partial[(size_t)r * row + row - 1] += not_finite != 0;
        }
    return is_split(z) ? run(z, &all, 1, err) : 0;
}

int zero_norm(struct zero *z, double *norm, int *bad, const char **tensor, struct err *err)
{
    const struct param_table *t = z->table;
    size_t row = (size_t)t->nflats + 1;
    double *partial = z->partial, total = 0;

    memset(partial, 0, row * (size_t)t->ranks * sizeof *partial);
    *bad = 0;
    *tensor = NULL;
    clear_fixed(z);
    if (partial_sums(z, partial, tensor, err) < 0)
        return -1;
    for (int f = 0; f < t->nflats; f++)
        for (int r = 0; r < t->ranks; r++)
            total += partial[(size_t)r * row + (size_t)f];
    for (int r = 0; r < t->ranks; r++)
        *bad |= partial[(size_t)r * row + row - 1] != 0;
    *norm = sqrt(total);
    return 0;
}

/* ---- update ---- */

/* Runs of neighbouring tensors with the same hyper-parameters are updated in one call; the padding between
 * them is zero in every array and stays zero. */
static uint64_t run_end(const struct param_table *t, const struct param_flat *f, int i, int *next)
{
    int last = f->first + f->ntensors, j = i + 1;

    while (j < last && t->tensor[j].group == t->tensor[i].group &&
           is_fixed(&t->tensor[j]) == is_fixed(&t->tensor[i]))
        j++;
    *next = j;
    return j < last ? t->tensor[j].offset : f->numel;
}

/* Elements [lo, hi) of a flat, inside the slices held. */
static void update_range(struct zero *z, int flat, uint64_t lo, uint64_t hi,
                         const struct param_group *g, const struct ds_scalars *s)
{
    const struct param_flat *f = &z->table->flat[flat];
    const struct job *job = z->job;
    uint64_t skip = lo - (uint64_t)z->first * f->slice;
    float *w = zero_slice(z, ZERO_W, flat, z->first) + skip;
    float *m = zero_slice(z, ZERO_M, flat, z->first) + skip;
    float *v = zero_slice(z, ZERO_V, flat, z->first) + skip;

    z->k->adamw(w, m, v, w, m, v, z->grad + f->base + lo,
                z->dtype == DS_F32 ? NULL : weight_at(z, f->base + lo), (int64_t)(hi - lo),
                (float)g->lr_mul, (float)job->betas.v[0], (float)job->betas.v[1], (float)job->eps,
                (float)g->weight_decay, job->optim == OPTIM_ADAMW || job->adam_w_mode, s, z->dtype, NULL);
}

int zero_update(struct zero *z, const struct ds_scalars *s, struct err *err)
{
    const struct param_table *t = z->table;

    for (int f = 0; f < t->nflats; f++) {
        const struct param_flat *flat = &t->flat[f];
        uint64_t lo = (uint64_t)z->first * flat->slice, hi = lo + (uint64_t)z->nslices * flat->slice;

        for (int i = flat->first, next; i < flat->first + flat->ntensors; i = next) {
            uint64_t end = run_end(t, flat, i, &next), begin = t->tensor[i].offset;

            begin = begin > lo ? begin : lo;
            end = end < hi ? end : hi;
            if (begin < end && !is_fixed(&t->tensor[i]))
                update_range(z, f, begin, end, &t->group[t->tensor[i].group], s);
        }
    }
    return gather_weights(z, err);
}

void zero_bytes(uint64_t numel, enum ds_dtype dtype, int stage, int ranks, uint64_t out[MEM_CLASSES])
{
    memset(out, 0, sizeof *out * MEM_CLASSES);
    out[MEM_PARAM] = numel * ds_dtype_bytes(dtype);
    out[MEM_GRAD] = numel * 4;
    out[MEM_OPTIM] = numel * (dtype == DS_F32 ? 8 : 12) / (uint64_t)(stage ? ranks : 1);
}
