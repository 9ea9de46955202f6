/* Dropout: the mask is drawn again in backward, never stored. A block of 4 * LANES elements takes
 * one call of Philox in LANES lanes. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/vec.h"

#define BLOCK (4 * LANES)

/* y = x * mask (+ res) over the elements [lo, hi) of one sample; lo is a multiple of BLOCK */
INLINE void span(void *y, const void *x, const void *res, int64_t lo, int64_t hi,
                 const struct mask_key *key, enum ds_dtype dt)
{
    for (int64_t e = lo; e < hi; e += BLOCK) {
        vu word[4] = {{0}};

        if (key)
            philox_words(key, (uint32_t)(e / 4), word);
        for (int j = 0; j < 4 && e + j * LANES < hi; j++) {
            int64_t i = e + j * LANES;
            vf v = ldn(x, i, hi, dt);

            if (key)
                v *= mask_factor(key, word[j]);
            if (res)
                v += ldn(res, i, hi, dt);
            stn(y, i, hi, v, dt);
        }
    }
}

static void samples(void *y, const void *x, const void *res, int64_t B, int64_t n,
                    const struct ds_dropout *d, enum ds_dtype dt)
{
#pragma omp parallel if (B * n > TEAM_MIN)
    {
        int64_t lo, hi;

        team_span(n, BLOCK, &lo, &hi);
        for (int64_t b = 0; b < B; b++) {
            struct mask_key k = {0}, *key = NULL;
            const void *r = res ? at(res, b * n, dt) : NULL;

            if (d && d->p > 0.0f) {
                k = mask_key(d, b, d->site);
                key = &k;
            }
            BY_TYPE(dt, span, at_w(y, b * n, dt), at(x, b * n, dt), r, lo, hi, key);
        }
    }
}

void K(dropout_add_fwd)(void *y, const void *x, const void *res, int64_t B, int64_t T, int64_t C,
                        const struct ds_dropout *d, enum ds_dtype dt, struct ds_stream *stream)
{
    samples(y, x, res, B, T * C, d, dt);
}

void K(dropout_bwd)(void *dx, const void *dy, int64_t B, int64_t T, int64_t C,
                    const struct ds_dropout *d, enum ds_dtype dt, struct ds_stream *stream)
{
    samples(dx, dy, NULL, B, T * C, d, dt);
}
