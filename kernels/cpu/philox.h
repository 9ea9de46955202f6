/* Philox4x32-10 in LANES lanes, laid out as in kernels.h (struct ds_dropout): counter (sample,
 * site, element / 4), key = seed, word element % 4. */
#ifndef DS_KERNELS_CPU_PHILOX_H
#define DS_KERNELS_CPU_PHILOX_H

#include "kernels/cpu/vec.h"
#include "kernels/kernels.h"

/* High and low halves of a * m per lane */
INLINE void mul_wide(vu a, uint32_t m, vu *hi, vu *lo)
{
#if LANES == 16
    __m512i v = (__m512i)a, k = _mm512_set1_epi32((int)m);
    __m512i even = _mm512_mul_epu32(v, k), odd = _mm512_mul_epu32(_mm512_srli_epi64(v, 32), k);

    *hi = (vu)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    *lo = (vu)_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
#elif LANES == 8
    __m256i v = (__m256i)a, k = _mm256_set1_epi32((int)m);
    __m256i even = _mm256_mul_epu32(v, k), odd = _mm256_mul_epu32(_mm256_srli_epi64(v, 32), k);

    *hi = (vu)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    *lo = (vu)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
#else
    for (int i = 0; i < LANES; i++) {
        uint64_t p = (uint64_t)a[i] * m;

        (*hi)[i] = (uint32_t)(p >> 32);
        (*lo)[i] = (uint32_t)p;
    }
#endif
}

/* a0 b0 a1 b1 ... of the lower and of the upper half */
INLINE vu zip_lo(vu a, vu b)
{
#if LANES == 16
    return __builtin_shuffle(a, b, (vu){0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
#elif LANES == 8
    return __builtin_shuffle(a, b, (vu){0, 8, 1, 9, 2, 10, 3, 11});
#else
    return __builtin_shuffle(a, b, (vu){0, 4, 1, 5});
#endif
}

INLINE vu zip_hi(vu a, vu b)
{
#if LANES == 16
    return __builtin_shuffle(a, b,
                             (vu){8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
#elif LANES == 8
    return __builtin_shuffle(a, b, (vu){4, 12, 5, 13, 6, 14, 7, 15});
#else
    return __builtin_shuffle(a, b, (vu){2, 6, 3, 7});
#endif
}

/* What a mask needs, prepared once per sample and site. */
struct mask_key {
    uint32_t sample_lo, sample_hi, site, seed_lo, seed_hi;
    uint32_t threshold; /* keep when word >= threshold ... */
    int drop_all;       /* ... unless p >= 1 */
    float scale;        /* of a kept element */
};

static inline struct mask_key mask_key(const struct ds_dropout *d, int64_t b, uint32_t site)
{
    double limit = ceil((double)d->p * 4294967296.0);
    struct mask_key k = {
        .sample_lo = (uint32_t)d->sample[b],
        .sample_hi = (uint32_t)(d->sample[b] >> 32),
        .site = site,
        .seed_lo = (uint32_t)d->seed,
        .seed_hi = (uint32_t)(d->seed >> 32),
        .drop_all = limit >= 4294967296.0,
    };

    k.threshold = k.drop_all ? UINT32_MAX : (uint32_t)limit;
    k.scale = k.drop_all ? 0.0f : 1.0f / (1.0f - d->p);
    return k;
}

/* The 4 * LANES words of the elements from 4 * block on, in order of element. */
INLINE void philox_words(const struct mask_key *k, uint32_t block, vu out[4])
{
    vu c0 = vu_set(k->sample_lo), c1 = vu_set(k->sample_hi), c2 = vu_set(k->site);
    vu c3 = vu_set(block) + (vu)vi_iota();
    uint32_t k0 = k->seed_lo, k1 = k->seed_hi;

    for (int round = 0; round < 10; round++) {
        vu hi0, lo0, hi1, lo1;

        mul_wide(c0, 0xd2511f53u, &hi0, &lo0);
        mul_wide(c2, 0xcd9e8d57u, &hi1, &lo1);
        c0 = hi1 ^ c1 ^ k0;
        c1 = lo1;
        c2 = hi0 ^ c3 ^ k1;
        c3 = lo0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    vu a = zip_lo(c0, c2), b = zip_lo(c1, c3), c = zip_hi(c0, c2), d = zip_hi(c1, c3);

    out[0] = zip_lo(a, b);
    out[1] = zip_hi(a, b);
    out[2] = zip_lo(c, d);
    out[3] = zip_hi(c, d);
}

/* What an element is multiplied by: 1/(1-p) or 0. */
INLINE vf mask_factor(const struct mask_key *k, vu word)
{
    return (vf)((vi)vf_set(k->scale) & (vi)(word >= k->threshold));
}

#endif
