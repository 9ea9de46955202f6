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

/* Elements of a rank's weights, gradients and states. */
struct sizes {
    uint64_t weight, grad, state, second;
};

/* A layer is held whole where none of its parameters is larger than the threshold. */
static int persists(const struct zero *z, int flat, uint64_t already)
{
    const struct param_flat *f = &z->table->flat[flat];
    uint64_t numel = 0; /* of a parameter: its parts follow each other */

    for (int i = f->first; i < f->first + f->ntensors; i++) {
        const struct param_tensor *x = &z->table->tensor[i];

        numel = x->part ? numel + x->numel : x->numel;
        if (numel > (uint64_t)z->job->persist)
            return 0;
    }
    return already + f->numel <= (uint64_t)z->job->persist_total;
}

static struct sizes place_states(struct zero *z)
{
    const struct param_table *t = z->table;
    uint64_t persistent = 0;
    struct sizes n = {0};

    z->flat = xcalloc((size_t)t->nflats + 1, sizeof *z->flat);
    for (int i = 0; i < t->nflats; i++) {
        int whole = z->stage < 3 || persists(z, i, persistent);

        if (z->stage == 3 && whole)
            persistent += t->flat[i].numel;
        z->flat[i] = (struct zero_flat){.weight = n.weight, .grad = n.grad, .state = n.state,
                                        .whole = whole, .weight_slot = -1, .grad_slot = -1,
                                        .zero = z, .second = n.second};
        n.second += z->nnear > 1 && !whole ? zero_near_part(z, i) : 0;
        n.weight += whole ? zero_elements(z, i) : t->flat[i].slice;
        n.grad += z->stage < 2 ? zero_elements(z, i) : t->flat[i].slice;
        n.state += t->flat[i].slice * (uint64_t)z->nslices;
    }
    return n;
}

static void *alloc_shared(struct zero *z, uint64_t bytes, enum mem_class class, struct err *err)
{
    void *p = z->comm->ops->alloc(z->comm, bytes, class, err);

    if (p)
        memset(p, 0, bytes);
    return p;
}

static int alloc_second(struct zero *z, uint64_t elements, struct err *err)
{
    if (z->comm->ops->split(&z->near, z->comm, z->comm->rank / z->nnear, err) < 0)
        return -1;
    z->second = z->near->ops->alloc(z->near, elements * ds_dtype_bytes(z->dtype), MEM_BUFFER, err);
    return z->second ? 0 : -1;
}

static int alloc_states(struct zero *z, struct sizes n, struct err *err)
{
    size_t row = (size_t)z->table->nflats + 1;

    z->group = xcalloc(row + 1, sizeof *z->group);
    z->partial = xcalloc(row * (size_t)z->table->ranks, sizeof *z->partial);
    z->trust = xcalloc((size_t)z->table->ntensors * 2 + 1, sizeof *z->trust);
    z->grad = alloc_shared(z, n.grad * sizeof(float), MEM_GRAD, err);
    if (!z->grad)
        return -1;
    z->weight = alloc_shared(z, n.weight * ds_dtype_bytes(z->dtype), MEM_PARAM, err);
    if (!z->weight || zero_pool_alloc(z, &z->weights, ds_dtype_bytes(z->dtype), err) < 0 ||
        zero_pool_alloc(z, &z->grads, sizeof(float), err) < 0)
        return -1;
    if (n.second && alloc_second(z, n.second, err) < 0)
        return -1;
    for (int k = z->dtype == DS_F32 ? ZERO_M : ZERO_W; k < ZERO_KINDS; k++) {
        if (!zero_has(z, (enum zero_kind)k))
            continue;
        z->state[k] = alloc_zeroed(z->dev, n.state, sizeof(float), MEM_OPTIM, err);
        if (!z->state[k])
            return -1;
    }
    return 0;
}

/* Everything but memory: what lies where, and how many slots there are. */
static struct sizes set_up(struct zero *z)
{
    int split = z->stage >= 1;
    struct sizes n;

    z->first = split && z->comm ? z->comm->rank : 0;
    z->nnear = z->stage == 3 ? (int)z->job->hpz : 1;
    z->nslices = split ? 1 : z->table->ranks;
    n = place_states(z);
    if (z->stage >= 2) {
        zero_needs(z);
        zero_walk(z);
    }
    return n;
}

static int stage_of(const struct param_table *t, const struct job *job)
{
    return t->ranks > 1 ? (int)job->zero_stage : 0;
}

int zero_create(struct zero **out, const struct param_table *t, const struct order *order,
                const struct kernels *k, struct device *dev, struct comm *comm, const struct job *job,
                enum ds_dtype dtype, struct err *err)
{
    struct zero *z = xcalloc(1, sizeof *z);

    *z = (struct zero){.table = t, .order = order, .job = job, .k = k, .dev = dev, .comm = comm, .dtype = dtype,
                       .optim = optim_of(job), .stage = stage_of(t, job)};
    if (alloc_states(z, set_up(z), err) < 0) {
        err_prefix(err, "model states of %llu parameters", (unsigned long long)t->numel);
        zero_destroy(z);
        return -1;
    }
    *out = z;
    return 0;
}

static void clear(struct zero *z)
{
    for (int l = 0; z->need && l < z->table->nlayers; l++) {
        free(z->need[l].flat);
        free(z->need[l].backward);
    }
    free(z->need);
    zero_pool_clear(&z->weights);
    zero_pool_clear(&z->grads);
    free(z->event);
    free(z->flat);
    free(z->group);
    free(z->partial);
    free(z->trust);
}

/* After a failure peers may not come any more: what is still under way is given up. */
static void finish(struct zero *z)
{
    for (int f = 0; z->flat && f < z->table->nflats; f++)
        if (z->flat[f].ready)
            zero_await(z, z->flat[f].ready, zero_stream(z));
    for (int i = 0; i < z->grads.n; i++)
        if (z->grads.slot[i].last)
            zero_await(z, z->grads.slot[i].last, zero_stream(z));
    if (z->nevents) {
        z->comm->ops->abort(z->comm);
        if (z->near)
            z->near->ops->abort(z->near);
    }
    for (int i = 0; i < z->nevents; i++)
        z->dev->ops->event_done(z->event[i], 1);
}

void zero_destroy(struct zero *z)
{
    if (!z)
        return;
    finish(z);
    for (int k = 0; k < ZERO_KINDS; k++)
        z->dev->ops->free(z->dev, z->state[k]);
    if (z->near)
        z->near->ops->destroy(z->near);
    clear(z);
    free(z);
}

int zero_has(const struct zero *z, enum zero_kind kind)
{
    return kind == ZERO_W || optim_moment(z->job, kind == ZERO_M ? OPTIM_M : OPTIM_V);
}

float *zero_slice(const struct zero *z, enum zero_kind kind, int flat, int rank)
{
    if (kind == ZERO_W && z->dtype == DS_F32)
        return zero_weight(z, flat, rank, 0);
    return z->state[kind] + z->flat[flat].state +
           (uint64_t)(rank - z->first) * z->table->flat[flat].slice;
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

int zero_run(struct zero *z, const struct coll *group, int n, int64_t bucket, struct err *err)
{
    struct ds_stream *s = z->dev->ops->stream(z->dev, STREAM_COMPUTE);
    int64_t elements = 0;

    for (int i = 0, first = 0; i < n; i++) {
        elements += group[i].count;
        if (i + 1 < n && elements + group[i + 1].count <= bucket)
            continue;
        if (z->comm->ops->submit(z->comm, group + first, i + 1 - first, s, err) < 0)
            return -1;
        first = i + 1;
        elements = 0;
    }
    z->dev->ops->event_done(z->dev->ops->record(s), 1);
    return z->comm->ops->poll(z->comm, err);
}

int zero_gather(struct zero *z, struct err *err)
{
    const struct param_table *t = z->table;
    int n = 0;

    zero_forget(z);
    for (int f = 0; f < t->nflats && zero_split(z); f++)
        if (z->flat[f].whole)
            z->group[n++] = (struct coll){.op = COLL_ALL_GATHER, .count = (int64_t)t->flat[f].slice,
                                          .dtype = z->dtype, .send = zero_weight(z, f, z->first, 0),
                                          .recv = zero_weight(z, f, 0, 0), .class = CLASS_PARAM};
    return zero_run(z, z->group, n, z->job->gather_bucket / t->ranks, err);
}

int zero_refresh(struct zero *z, struct err *err)
{
    const struct param_table *t = z->table;

    for (int f = 0; z->dtype != DS_F32 && f < t->nflats; f++)
        z->k->cast(zero_weight(z, f, z->first, 0), z->dtype, zero_slice(z, ZERO_W, f, z->first), DS_F32,
                   (int64_t)t->flat[f].slice * z->nslices, NULL);
    return zero_gather(z, err);
}

void zero_counters(const struct zero *z, struct comm_counters *c)
{
    struct comm_counters near = {0};

    z->comm->ops->counters(z->comm, c);
    if (z->near)
        z->near->ops->counters(z->near, &near);
    for (int op = 0; op < COLL_OPS; op++) {
        c->calls[op] += near.calls[op];
        for (int class = 0; class < CLASSES; class++) {
            c->sent[op][class] += near.sent[op][class];
            c->received[op][class] += near.received[op][class];
        }
    }
}

void zero_bytes(const struct param_table *t, const struct order *order, const struct job *job,
                enum ds_dtype dtype, uint64_t out[MEM_CLASSES])
{
    struct zero z = {.table = t, .order = order, .job = job, .dtype = dtype, .stage = stage_of(t, job)};
    int arrays = (dtype != DS_F32) + optim_moment(job, OPTIM_M) + optim_moment(job, OPTIM_V);
    struct sizes n = set_up(&z);

    memset(out, 0, sizeof *out * MEM_CLASSES);
    out[MEM_PARAM] = n.weight * ds_dtype_bytes(dtype);
    out[MEM_GRAD] = n.grad * sizeof(float);
    out[MEM_OPTIM] = n.state * sizeof(float) * (uint64_t)arrays;
    out[MEM_BUFFER] = zero_pool_bytes(&z.weights, ds_dtype_bytes(dtype)) +
                      zero_pool_bytes(&z.grads, sizeof(float)) + n.second * ds_dtype_bytes(dtype);
    clear(&z);
}

void zero_traffic(const struct param_table *t, const struct order *order, const struct job *job,
                  enum ds_dtype dtype, uint64_t out[CLASSES])
{
    struct zero z = {.table = t, .order = order, .job = job, .dtype = dtype, .stage = stage_of(t, job)};
    uint64_t others = (uint64_t)t->ranks - 1, own = t->total / (uint64_t)t->ranks, whole = 0;

    memset(out, 0, sizeof *out * CLASSES);
    set_up(&z);
    for (int f = 0; f < t->nflats; f++)
        whole += z.flat[f].whole ? t->flat[f].slice : 0;
    if (z.stage >= 2)
        zero_walk_step(&z, job->accumulation);
    out[CLASS_GRAD] = others * own * 4 * (z.stage == 0 ? 2 : z.stage == 1 ? 1 : (uint64_t)job->accumulation);
    out[CLASS_PARAM] = z.stage ? (others * whole + z.fetched) * ds_dtype_bytes(dtype) : 0;
    clear(&z);
}
