/* The global norm of the gradients, and which of them is not finite. */
#include "engine/zero/zero_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first value of a slice that is not finite: 1 + 2 x its tensor, one more for NaN. */
static double bad_value(const struct zero *z, int flat, int rank)
{
    const float *g = zero_grad(z, flat, rank);
    struct param_seg *seg;
    int n = param_segments(z->table, flat, rank, &seg);
    double code = 0;

    for (int s = 0; s < n && code == 0; s++)
        for (uint64_t i = 0; i < seg[s].hi - seg[s].lo && code == 0; i++)
            if (!isfinite(g[seg[s].at + i]))
                code = 1 + 2 * seg[s].tensor + (isnan(g[seg[s].at + i]) ? 1 : 0);
    free(seg);
    return code;
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

/* partial[rank][flat], and partial[rank][nflats] = the first bad value of the rank's slices. */
static int partial_sums(struct zero *z, double *partial, struct err *err)
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
            if (not_finite && partial[(size_t)r * row + row - 1] == 0)
                partial[(size_t)r * row + row - 1] = bad_value(z, f, r);
        }
    return zero_split(z) ? zero_run(z, &all, 1, 0, err) : 0;
}

/* The first in the order of the table, so that all ranks name the same. */
static struct zero_bad first_bad(const struct zero *z, const double *partial)
{
    size_t row = (size_t)z->table->nflats + 1;
    int first = 0;

    for (int r = 0; r < z->table->ranks; r++) {
        int code = (int)partial[(size_t)r * row + row - 1];

        if (code && (!first || code < first))
            first = code;
    }
    return first ? (struct zero_bad){z->table->tensor[(first - 1) / 2].name, (first - 1) % 2 ? "NaN" : "inf"}
                 : (struct zero_bad){0};
}

int zero_norm(struct zero *z, double *norm, struct zero_bad *bad, struct err *err)
{
    const struct param_table *t = z->table;
    size_t row = (size_t)t->nflats + 1;
    double *partial = z->partial, total = 0;

    memset(partial, 0, row * (size_t)t->ranks * sizeof *partial);
    clear_fixed(z);
    if (partial_sums(z, partial, err) < 0)
        return -1;
    for (int f = 0; f < t->nflats; f++)
        for (int r = 0; r < t->ranks; r++)
            total += partial[(size_t)r * row + (size_t)f];
    *bad = first_bad(z, partial);
    *norm = sqrt(total);
    return 0;
}
