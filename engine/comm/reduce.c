/* Sums in rank order: see reduce.h. Blocks of BLOCK elements stay in the first-level cache between
 * the sum and the writes. */
#include "engine/comm/reduce.h"

#include <string.h>

#define BLOCK 2048

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define CLONES
#endif

size_t acc_bytes(enum ds_dtype dtype)
{
    return dtype == DS_BF16 ? 4 : ds_dtype_bytes(dtype);
}

#define ACCUMULATE(NAME, T)                                                                        \
    CLONES static void NAME(T *restrict a, const T *s, int first, int64_t n, int max)              \
    {                                                                                              \
        if (first)                                                                                 \
            memcpy(a, s, (size_t)n * sizeof *a);                                                   \
        else if (max)                                                                              \
            for (int64_t i = 0; i < n; i++)                                                        \
                a[i] = s[i] > a[i] || s[i] != s[i] ? s[i] : a[i];                                  \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                a[i] = (T)(a[i] + s[i]);                                                           \
    }
ACCUMULATE(acc_f32, float)
ACCUMULATE(acc_f64, double)
ACCUMULATE(acc_u64, uint64_t)
ACCUMULATE(acc_u8, uint8_t)

CLONES static void max_i64(int64_t *restrict a, const int64_t *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i] = s[i] > a[i] ? s[i] : a[i];
}

static inline float widen(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

CLONES static void acc_bf16(float *restrict a, const uint16_t *s, int first, int64_t n, int max)
{
    if (first)
        for (int64_t i = 0; i < n; i++)
            a[i] = widen(s[i]);
    else if (max)
        for (int64_t i = 0; i < n; i++) {
            float f = widen(s[i]);

            a[i] = f > a[i] || f != f ? f : a[i];
        }
    else
        for (int64_t i = 0; i < n; i++)
            a[i] += widen(s[i]);
}

/* To nearest even; a NaN stays a NaN. */
CLONES static void round_bf16(uint16_t *y, const float *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;

        memcpy(&u, &a[i], sizeof u);
        y[i] = (u & 0x7fffffff) > 0x7f800000 ? (uint16_t)(u >> 16 | 0x40)
                                             : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
}

static void accumulate(void *acc, const void *src, int first, int64_t n, enum coll_reduce op,
                       enum ds_dtype dtype)
{
    int max = op == COLL_MAX;

    switch (dtype) {
    case DS_F32:
        acc_f32(acc, src, first, n, max);
        break;
    case DS_BF16:
        acc_bf16(acc, src, first, n, max);
        break;
    case DS_F64:
        acc_f64(acc, src, first, n, max);
        break;
    case DS_I64: /* sums wrap, so they are done unsigned */
        if (max && !first)
            max_i64(acc, src, n);
        else
            acc_u64(acc, src, first, n, 0);
        break;
    default:
        acc_u8(acc, src, first, n, max);
    }
}

void reduce_into(void *acc, int have, const void *const *src, int nsrc, int64_t n,
                 enum coll_reduce op, enum ds_dtype dtype)
{
    size_t in = ds_dtype_bytes(dtype), out = acc_bytes(dtype);

    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = n - at < BLOCK ? n - at : BLOCK;

        for (int s = 0; s < nsrc; s++)
            accumulate((char *)acc + (size_t)at * out, (const char *)src[s] + (size_t)at * in,
                       s == 0 && !have, m, op, dtype);
    }
}

void reduce_round(void *y, const void *acc, int64_t n, enum ds_dtype dtype)
{
    if (dtype == DS_BF16)
        round_bf16(y, acc, n);
    else if (y != acc)
        memcpy(y, acc, (size_t)n * ds_dtype_bytes(dtype));
}

void reduce_many(void *const *dst, int ndst, const void *const *src, int nsrc, int64_t n,
                 enum coll_reduce op, enum ds_dtype dtype)
{
    _Alignas(64) double acc[BLOCK]; /* the widest accumulator */
    _Alignas(64) uint16_t narrow[BLOCK];
    size_t bytes = ds_dtype_bytes(dtype);

    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = n - at < BLOCK ? n - at : BLOCK;
        const void *y = acc;

        for (int s = 0; s < nsrc; s++)
            accumulate(acc, (const char *)src[s] + (size_t)at * bytes, s == 0, m, op, dtype);
        if (dtype == DS_BF16) {
            round_bf16(narrow, (const float *)acc, m);
            y = narrow;
        }
        for (int d = 0; d < ndst; d++)
            memcpy((char *)dst[d] + (size_t)at * bytes, y, (size_t)m * bytes);
    }
}
