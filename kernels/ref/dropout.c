/* Philox4x32-10 and dropout: the reference. */
#include "kernels/ref/ref.h"

uint32_t ref_random_word(uint64_t seed, uint64_t sample, uint32_t site, uint64_t element)
{
    uint32_t c[4] = {(uint32_t)sample, (uint32_t)(sample >> 32), site, (uint32_t)(element / 4)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53 * c[0], b = (uint64_t)0xcd9e8d57 * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b,
                            (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a};

        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        key[0] += 0x9e3779b9;
        key[1] += 0xbb67ae85;
    }
    return c[element % 4];
}

double ref_dropout_factor(const struct ds_dropout *d, int64_t b, uint32_t site, uint64_t element)
{
    if (!d || d->p == 0.0f)
        return 1.0;
    if ((double)ref_random_word(d->seed, d->sample[b], site, element) < (double)d->p * 4294967296.0)
        return 0.0;
    return 1.0 / (1.0 - (double)d->p);
}

void ref_dropout_add_fwd(double *y, const double *x, const double *res, int64_t B, int64_t T,
                         int64_t C, const struct ds_dropout *d)
{
    for (int64_t b = 0; b < B; b++)
        for (int64_t e = 0; e < T * C; e++) {
            double v = x[b * T * C + e] * ref_dropout_factor(d, b, d ? d->site : 0, (uint64_t)e);

            y[b * T * C + e] = v + (res ? res[b * T * C + e] : 0.0);
        }
}

void ref_dropout_bwd(double *dx, const double *dy, int64_t B, int64_t T, int64_t C,
                     const struct ds_dropout *d)
{
    ref_dropout_add_fwd(dx, dy, 0, B, T, C, d); /* the mask is linear and symmetric */
}
