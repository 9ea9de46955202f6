/* The optimizer over the slices held. */
#include "engine/zero/zero_impl.h"

/* Runs of neighbouring tensors with the same hyper-parameters are updated in one call; the padding between
 * them is zero in every array and stays zero. */
static uint64_t run_end(const struct param_table *t, const struct param_flat *f, int i, int *next)
{
    int last = f->first + f->ntensors, j = i + 1;

    while (j < last && t->tensor[j].group == t->tensor[i].group &&
           zero_fixed(&t->tensor[j]) == zero_fixed(&t->tensor[i]))
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

    z->k->adamw(w, m, v, w, m, v, zero_grad(z, flat, z->first) + skip,
                z->dtype == DS_F32 ? NULL : zero_weight(z, flat, z->first, skip), (int64_t)(hi - lo),
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
            if (begin < end && !zero_fixed(&t->tensor[i]))
                update_range(z, f, begin, end, &t->group[t->tensor[i].group], s);
        }
    }
    return zero_gather(z, err);
}
