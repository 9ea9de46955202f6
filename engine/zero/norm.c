/* The global norm of the gradients, and which of them is not finite. */
#include "engine/zero/zero_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first tensor of a flat with a value that is not finite, among the slices held. */
static const char *bad_tensor(const struct zero *z, int f)
{
    const char *name = NULL;

    for (int r = z->first; r < z->first + z->nslices && !name; r++) {
        const float *g = zero_grad(z, f, r);
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

/* Frozen gradients count nowhere; from stage 2 on they are cleared before they are reduced. */
static void clear_fixed(struct zero *z)
{
    const struct param_table *t = z->table;

    for (int f = 0; f < t->nflats && z->stage < 2; f++)
        for (int i = t->flat[f].first; i < t->flat[f].first + t->flat[f].ntensors; i++)
            if (zero_fixed(&t->tensor[i]))
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

            z->k->sumsq(&partial[(size_t)r * row + (size_t)f], &not_finite, zero_grad(z, f, r),
                        (int64_t)t->flat[f].slice, NULL);
            if (not_finite && !*tensor)
                *tensor = bad_tensor(z, f);
            partial[(size_t)r * row + row - 1] += not_finite != 0;
        }
    return zero_split(z) ? zero_run(z, &all, 1, 0, err) : 0;
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
