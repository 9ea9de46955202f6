/* Model states of one rank: see zero.h. */
#include "engine/zero/zero.h"

#include "engine/base/buf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *alloc_zeroed(struct device *dev, uint64_t n, size_t size, enum mem_class class,
                          struct err *err)
{
    void *p = dev->ops->alloc(dev, n * size, class, err);

    if (p)
        memset(p, 0, n * size);
    return p;
}

int zero_create(struct zero **out, const struct param_table *t, const struct kernels *k,
                struct device *dev, struct comm *comm, const struct job *job, enum ds_dtype dtype,
                struct err *err)
{
    struct zero *z = xcalloc(1, sizeof *z);

    *z = (struct zero){.table = t, .k = k, .dev = dev, .comm = comm, .dtype = dtype, .job = job};
    z->grad = comm->ops->alloc(comm, t->total * sizeof(float), MEM_GRAD, err);
    if (!z->grad)
        goto fail;
    memset(z->grad, 0, t->total * sizeof(float));
    z->m = alloc_zeroed(dev, t->total, sizeof(float), MEM_OPTIM, err);
    z->v = z->m ? alloc_zeroed(dev, t->total, sizeof(float), MEM_OPTIM, err) : NULL;
    if (!z->v)
        goto fail;
    z->master = alloc_zeroed(dev, t->total, sizeof(float), dtype == DS_F32 ? MEM_PARAM : MEM_OPTIM,
                             err);
    if (!z->master)
        goto fail;
    z->weight = dtype == DS_F32 ? z->master
                                : alloc_zeroed(dev, t->total, ds_dtype_bytes(dtype), MEM_PARAM, err);
    if (!z->weight)
        goto fail;
    *out = z;
    return 0;
fail:
    err_prefix(err, "model states of %llu parameters", (unsigned long long)t->numel);
    zero_destroy(z);
    return -1;
}

void zero_destroy(struct zero *z)
{
    if (!z)
        return;
    if (z->weight != z->master)
        z->dev->ops->free(z->dev, z->weight);
    z->dev->ops->free(z->dev, z->master);
    z->dev->ops->free(z->dev, z->m);
    z->dev->ops->free(z->dev, z->v);
    free(z);
}

#define INIT_BLOCK 65536

static void init_tensor(const struct param_tensor *x, uint64_t seed, float *at)
{
    int64_t blocks = (int64_t)((x->numel + INIT_BLOCK - 1) / INIT_BLOCK);

#pragma omp parallel for schedule(dynamic)
    for (int64_t b = 0; b < blocks; b++) {
        uint64_t lo = (uint64_t)b * INIT_BLOCK, hi = lo + INIT_BLOCK;

        param_init_range(x, seed, lo, hi < x->numel ? hi : x->numel, at + lo);
    }
}

void zero_init(struct zero *z, uint64_t seed)
{
    const struct param_table *t = z->table;

    for (int f = 0; f < t->nflats; f++)
        for (int i = t->flat[f].first; i < t->flat[f].first + t->flat[f].ntensors; i++)
            init_tensor(&t->tensor[i], seed, z->master + t->flat[f].base + t->tensor[i].offset);
    zero_refresh(z);
}

void zero_refresh(struct zero *z)
{
    if (z->weight != z->master)
        z->k->cast(z->weight, z->dtype, z->master, DS_F32, (int64_t)z->table->total, NULL);
}

int zero_reduce(struct zero *z, double *sums, int n, double peak[2], struct err *err)
{
    struct ds_stream *s = z->dev->ops->stream(z->dev, STREAM_COMPUTE);
    struct coll group[3] = {
        {.op = COLL_ALL_REDUCE, .send = z->grad, .recv = z->grad, .count = (int64_t)z->table->total,
         .dtype = DS_F32, .reduce = COLL_SUM, .class = CLASS_GRAD},
        {.op = COLL_ALL_REDUCE, .send = sums, .recv = sums, .count = n, .dtype = DS_F64,
         .reduce = COLL_SUM, .class = CLASS_CONTROL},
        {.op = COLL_ALL_REDUCE, .send = peak, .recv = peak, .count = 2, .dtype = DS_F64,
         .reduce = COLL_MAX, .class = CLASS_CONTROL},
    };

    if (z->comm->size == 1)
        return 0;
    if (z->comm->ops->submit(z->comm, group, 3, s, err) < 0)
        return -1;
    z->dev->ops->event_done(z->dev->ops->record(s), 1);
    return z->comm->ops->poll(z->comm, err);
}

static int is_fixed(const struct param_tensor *x)
{
    return (x->flags & (DS_FROZEN | DS_BUFFER)) != 0;
}

/* The first tensor of a flat that holds a value which is not finite. */
static const char *bad_tensor(const struct zero *z, const struct param_flat *f)
{
    const struct param_table *t = z->table;

    for (int i = f->first; i < f->first + f->ntensors; i++) {
        const float *g = z->grad + f->base + t->tensor[i].offset;

        for (uint64_t j = 0; j < t->tensor[i].numel; j++)
            if (!isfinite(g[j]))
                return t->tensor[i].name;
    }
    return NULL;
}

static void clear_fixed(struct zero *z)
{
    const struct param_table *t = z->table;

    for (int f = 0; f < t->nflats; f++)
        for (int i = t->flat[f].first; i < t->flat[f].first + t->flat[f].ntensors; i++)
            if (is_fixed(&t->tensor[i]))
                memset(z->grad + t->flat[f].base + t->tensor[i].offset, 0,
                       t->tensor[i].numel * sizeof(float));
}

double zero_norm(struct zero *z, int *bad, const char **tensor)
{
    const struct param_table *t = z->table;
    double total = 0;

    *bad = 0;
    if (tensor)
        *tensor = NULL;
    clear_fixed(z);
    for (int f = 0; f < t->nflats; f++)
        for (int r = 0; r < t->ranks; r++) {
            const float *g = z->grad + t->flat[f].base + (uint64_t)r * t->flat[f].slice;
            double sum = 0;
            int32_t not_finite = 0;

            z->k->sumsq(&sum, &not_finite, g, (int64_t)t->flat[f].slice, NULL);
            total += sum;
            if (not_finite && !*bad && tensor)
                *tensor = bad_tensor(z, &t->flat[f]);
            *bad |= not_finite != 0;
        }
    return sqrt(total);
}

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

static void update_run(struct zero *z, uint64_t at, uint64_t n, const struct param_group *g,
                       const struct ds_scalars *s)
{
    const struct job *job = z->job;
    void *out = NULL;

    if (z->weight != z->master)
        out = (char *)z->weight + at * ds_dtype_bytes(z->dtype);
    z->k->adamw(z->master + at, z->m + at, z->v + at, z->master + at, z->m + at, z->v + at,
                z->grad + at, out, (int64_t)n, (float)g->lr_mul, (float)job->betas.v[0],
                (float)job->betas.v[1], (float)job->eps, (float)g->weight_decay,
                job->optim == OPTIM_ADAMW || job->adam_w_mode, s, z->dtype, NULL);
}

void zero_update(struct zero *z, const struct ds_scalars *s)
{
    const struct param_table *t = z->table;

    for (int f = 0; f < t->nflats; f++) {
        const struct param_flat *flat = &t->flat[f];

        for (int i = flat->first, next; i < flat->first + flat->ntensors; i = next) {
            uint64_t end = run_end(t, flat, i, &next);

            if (!is_fixed(&t->tensor[i]))
                update_run(z, flat->base + t->tensor[i].offset, end - t->tensor[i].offset,
                           &t->group[t->tensor[i].group], s);
        }
    }
}

void zero_bytes(uint64_t numel, enum ds_dtype dtype, uint64_t out[MEM_CLASSES])
{
    memset(out, 0, sizeof *out * MEM_CLASSES);
    out[MEM_PARAM] = numel * ds_dtype_bytes(dtype);
    out[MEM_GRAD] = numel * 4;
    out[MEM_OPTIM] = numel * (dtype == DS_F32 ? 8 : 12);
}
