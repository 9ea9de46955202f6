/* Dropout: the mask is drawn again in backward, never stored. A block of 4 * LANES elements takes
 * one call of Philox in LANES lanes. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/vec.h"

#define BLOCK (4 * LANES)

/* y = x * mask (+ res) over the elements [lo, hi) of one sample; lo is a multiple of BLOCK */
INLINE void span(void *y, const void *x, const void *res, int64_t lo, int64_t hi,
                 const struct mask_key *key, int bf)
{
    for (int64_t e = lo; e < hi; e += BLOCK) {
        vu word[4] = {{0}};

        if (key)
            philox_words(key, (uint32_t)(e / 4), word);
        for (int j = 0; j < 4 && e + j * LANES < hi; j++) {
            int64_t i = e + j * LANES;
            vf v = ldn(x, i, hi, bf);

            if (key)
                v *= mask_factor(key, word[j]);
            if (res)
                v += ldn(res, i, hi, bf);
            stn(y, i, hi, v, bf);
        }
    }
}

static void samples(void *y, const void *x, const void *res, int64_t B, int64_t n,
                    const struct ds_dropout *d, int bf)
{
#pragma omp parallel if (B * n > TEAM_MIN)
    {
        int64_t lo, hi;

        team_span(n, BLOCK, &lo, &hi);
        for (int64_t b = 0; b < B; b++) {
            struct mask_key k = {0}, *key = NULL;
            const void *r = res ? at(res, b * n, bf) : NULL;

            if (d && d->p > 0.0f) {
                k = mask_key(d, b, d->site);
                key = &k;
            }
            if (bf)
                span(at_w(y, b * n, 1), at(x, b * n, 1), r, lo, hi, key, 1);
            else
                span(at_w(y, b * n, 0), at(x, b * n, 0), r, lo, hi, key, 0);
        }
    }
}

void K(dropout_add_fwd)(void *y, const void *x, const void *res, int64_t B, int64_t T, int64_t C,
                        const struct ds_dropout *d, enum ds_dtype dt, struct ds_stream *stream)
{
    samples(y, x, res, B, T * C, d, dt == DS_BF16);
}

void K(dropout_bwd)(void *dx, const void *dy, int64_t B, int64_t T, int64_t C,
                    const struct ds_dropout *d, enum ds_dtype dt, struct ds_stream *stream)
{
    samples(dx, dy, NULL, B, T * C, d, dt == DS_BF16);
}
