/* The optimizer over the slices held. */
#include "engine/zero/zero_impl.h"

#include <math.h>
#include <string.h>

/* A part of a flat with the same hyper-parameters: one call of the optimizer. */
struct part {
    int flat, next;     /* next: the tensor behind it */
    int tensor;         /* its first */
    uint64_t lo, hi;    /* elements of the flat, inside the slices held */
};

/* Neighbouring tensors of one group go in one call; the padding between them is zero in every array and stays
 * zero. An optimizer that looks at norms takes each tensor alone. */
static void take_part(const struct zero *z, struct part *p)
{
    const struct param_table *t = z->table;
    const struct param_flat *f = &t->flat[p->flat];
    uint64_t lo = (uint64_t)z->first * f->slice, hi = lo + (uint64_t)z->nslices * f->slice, end;
    int i = p->tensor, last = f->first + f->ntensors, j = i + 1;

    while (!z->optim->per_tensor && j < last && t->tensor[j].group == t->tensor[i].group &&
           zero_fixed(&t->tensor[j]) == zero_fixed(&t->tensor[i]))
        j++;
    end = j < last ? t->tensor[j].offset : f->numel;
    p->next = j;
    p->lo = t->tensor[i].offset > lo ? t->tensor[i].offset : lo;
    p->hi = end < hi ? end : hi;
}

/* The next part with something to update; begin with {.flat = -1}. */
static int next_part(const struct zero *z, struct part *p)
{
    const struct param_table *t = z->table;

    for (;;) {
        if (p->flat < 0 || p->next == t->flat[p->flat].first + t->flat[p->flat].ntensors) {
            if (++p->flat == t->nflats)
                return 0;
            p->next = t->flat[p->flat].first;
            if (!t->flat[p->flat].ntensors)
                continue;
        }
        p->tensor = p->next;
        take_part(z, p);
        if (p->lo < p->hi && !zero_fixed(&t->tensor[p->tensor]))
            return 1;
    }
}

static float *state_at(const struct zero *z, enum zero_kind kind, int flat, uint64_t skip)
{
    return zero_has(z, kind) ? zero_slice(z, kind, flat, z->first) + skip : NULL;
}

static struct ds_update update_of(const struct zero *z, const struct part *p)
{
    const struct param_group *g = &z->table->group[z->table->tensor[p->tensor].group];
    uint64_t skip = p->lo - (uint64_t)z->first * z->table->flat[p->flat].slice;
    float *w = state_at(z, ZERO_W, p->flat, skip), *m = state_at(z, ZERO_M, p->flat, skip);
    float *v = state_at(z, ZERO_V, p->flat, skip);

    return (struct ds_update){
        .w2 = w, .m2 = m, .v2 = v, .w = w, .m = m, .v = v, .g = zero_grad(z, p->flat, z->first) + skip,
        .out = z->dtype == DS_F32 ? NULL : zero_weight(z, p->flat, z->first, skip), .dt = z->dtype,
        .n = (int64_t)(p->hi - p->lo), .lr_mul = (float)g->lr_mul, .beta2 = (float)z->job->betas.v[1],
        .eps = (float)z->job->eps, .decay = (float)g->weight_decay, .variant = optim_variant(z->job)};
}

/* Lamb's trust ratio of a tensor: |w| / |u| between the bounds, 1 where one of them is 0. */
static float trust_ratio(const struct zero *z, const double sum[2])
{
    double ratio = sum[0] > 0 && sum[1] > 0 ? sqrt(sum[0] / sum[1]) : 1;

    return sum[0] > 0 && sum[1] > 0 ? (float)fmin(z->job->max_coeff, fmax(z->job->min_coeff, ratio)) : 1;
}

/* Added slice by slice, as the ranks of a stage that splits them are added: the same bits in every stage. */
static void part_norms(struct zero *z, const struct part *p, const struct ds_scalars *s)
{
    uint64_t slice = z->table->flat[p->flat].slice;
    double *sum = z->trust + 2 * p->tensor;
    struct part own = *p;

    for (own.lo = p->lo; own.lo < p->hi; own.lo = own.hi) {
        double one[2] = {0};
        struct ds_update u;

        own.hi = (own.lo / slice + 1) * slice;
        own.hi = own.hi < p->hi ? own.hi : p->hi;
        u = update_of(z, &own);
        z->k->lamb_norms(one, &u, s, NULL);
        sum[0] += one[0];
        sum[1] += one[1];
    }
}

/* The norms are those of whole tensors: sums over the ranks that hold a part. */
static int lamb(struct zero *z, const struct ds_scalars *s, struct err *err)
{
    int n = z->table->ntensors * 2;
    struct coll all = {.op = COLL_ALL_REDUCE, .send = z->trust, .recv = z->trust, .count = n,
                       .dtype = DS_F64, .reduce = COLL_SUM, .class = CLASS_CONTROL};

    memset(z->trust, 0, (size_t)n * sizeof *z->trust);
    for (struct part p = {.flat = -1}; next_part(z, &p);)
        part_norms(z, &p, s);
    if (zero_split(z) && zero_run(z, &all, 1, 0, err) < 0)
        return -1;
    for (struct part p = {.flat = -1}; next_part(z, &p);) {
        struct ds_update u = update_of(z, &p);

        z->k->lamb(&u, trust_ratio(z, z->trust + 2 * p.tensor), s, NULL);
    }
    return 0;
}

int zero_update(struct zero *z, const struct ds_scalars *s, struct err *err)
{
    if (z->optim->per_tensor) {
        if (lamb(z, s, err) < 0)
            return -1;
    } else {
        for (struct part p = {.flat = -1}; next_part(z, &p);) {
            struct ds_update u = update_of(z, &p);

            z->optim->step(z->k)(&u, s, NULL);
        }
    }
    return zero_gather(z, err);
}
