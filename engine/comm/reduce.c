/* Sums in rank order: see reduce.h.
 *
 * fp32 sums of up to FUSED sources are added in registers and stored to every destination at once:
 * half the time of a pass per source over blocks that stay in the first-level cache, which serves
 * the rest. Stores are plain ones: in place, the lines are in the cache already, and streaming
 * stores were slower.
 */
#include "engine/comm/reduce.h"

#include <string.h>

#define BLOCK 2048

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define CLONES \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define CLONES
#endif

static int is_half(enum ds_dtype t)
{
    return t == DS_BF16 || t == DS_F16;
}

size_t acc_bytes(enum ds_dtype dtype)
{
    return is_half(dtype) ? 4 : ds_dtype_bytes(dtype);
}

#define ACCUMULATE(NAME, T)                                                           \
    CLONES static void NAME(T *restrict a, const T *s, int first, int64_t n, int max) \
    {                                                                                 \
        if (first)                                                                    \
            memcpy(a, s, (size_t)n * sizeof *a);                                      \
        else if (max)                                                                 \
            for (int64_t i = 0; i < n; i++)                                           \
                a[i] = s[i] > a[i] || s[i] != s[i] ? s[i] : a[i];                     \
        else                                                                          \
            for (int64_t i = 0; i < n; i++)                                           \
                a[i] = (T)(a[i] + s[i]);                                              \
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

static inline float float_of(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float widen_bf16(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

/* To nearest even; a NaN stays a NaN. */
static inline uint16_t narrow_bf16(float f)
{
    uint32_t u = bits_of(f);

    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40
                                                    : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Subnormals of f16 are normal in f32 and never lie in a subnormal float, which may be flushed to
 * zero. Both sides of a choice are computed, so that the loops become vectors. */
static inline float widen_f16(uint16_t h)
{
    uint32_t a = h & 0x7fff, sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t tiny = bits_of((float)(int32_t)a * 0x1p-24f);
    uint32_t big = (a << 13) + (a >= 0x7c00 ? 224u << 23 : 112u << 23);

    return float_of((a < 0x400 ? tiny : big) | sign);
}

static inline uint16_t narrow_f16(float f)
{
    uint32_t u = bits_of(f), a = u & 0x7fffffff, sign = u >> 16 & 0x8000;
    uint32_t tiny = bits_of(float_of(a) + 0.5f) - 0x3f000000; /* floats in [0.5, 1): steps of 2^-24 */
    uint32_t r = (a - (112u << 23) + 0xfff + (a >> 13 & 1)) >> 13;

    r = a < 113u << 23 ? tiny : r;
    r = a >= 143u << 23 ? 0x7c00 : r;
    r = a > 0x7f800000 ? 0x7e00 : r;
    return (uint16_t)(r | sign);
}

#define ACCUMULATE_HALF(NAME, ROUND, WIDEN, NARROW)                                              \
    CLONES static void NAME(float *restrict a, const uint16_t *s, int first, int64_t n, int max) \
    {                                                                                            \
        if (first)                                                                               \
            for (int64_t i = 0; i < n; i++)                                                      \
                a[i] = WIDEN(s[i]);                                                              \
        else if (max)                                                                            \
            for (int64_t i = 0; i < n; i++) {                                                    \
                float f = WIDEN(s[i]);                                                           \
                                                                                                 \
                a[i] = f > a[i] || f != f ? f : a[i];                                            \
            }                                                                                    \
        else                                                                                     \
            for (int64_t i = 0; i < n; i++)                                                      \
                a[i] += WIDEN(s[i]);                                                             \
    }                                                                                            \
    CLONES static void ROUND(uint16_t *y, const float *a, int64_t n)                             \
    {                                                                                            \
        for (int64_t i = 0; i < n; i++)                                                          \
            y[i] = NARROW(a[i]);                                                                 \
    }
ACCUMULATE_HALF(acc_bf16, round_bf16, widen_bf16, narrow_bf16)
ACCUMULATE_HALF(acc_f16, round_f16, widen_f16, narrow_f16)

static void round_half(uint16_t *y, const float *a, int64_t n, enum ds_dtype t)
{
    if (t == DS_BF16)
        round_bf16(y, a, n);
    else
        round_f16(y, a, n);
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
    case DS_F16:
        acc_f16(acc, src, first, n, max);
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
    if (is_half(dtype))
        round_half(y, acc, n, dtype);
    else if (y != acc)
        memcpy(y, acc, (size_t)n * ds_dtype_bytes(dtype));
}

#define FUSED 8
typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
#define LANES (int64_t)(sizeof(vec) / sizeof(float))

/* All of an index are read before it is written: a dst may be a src. nsrc and ndst are constants
 * where this is inlined. Returns how many elements it did. */
static inline __attribute__((always_inline)) int64_t
fused(float *const *dst, const int ndst, const float *const *src, const int nsrc, int64_t n)
{
    const float *s[FUSED];
    float *d[FUSED];
    int64_t i = 0;

    for (int k = 0; k < nsrc; k++)
        s[k] = src[k];
    for (int k = 0; k < ndst; k++)
        d[k] = dst[k];
    for (; i + LANES <= n; i += LANES) {
        vec v = *(const vec *)(s[0] + i);

        for (int k = 1; k < nsrc; k++)
            v += *(const vec *)(s[k] + i);
        for (int k = 0; k < ndst; k++)
            *(vec *)(d[k] + i) = v;
    }
    return i;
}

#define FUSED_CASE(N)                                 \
    case N:                                           \
        return ndst == N   ? fused(dst, N, src, N, n) \
               : ndst == 1 ? fused(dst, 1, src, N, n) \
                           : fused(dst, N - 1, src, N, n)

/* ndst is 1, nsrc - 1 or nsrc */
CLONES static int64_t sum_f32(float *const *dst, int ndst, const float *const *src, int nsrc,
                              int64_t n)
{
    switch (nsrc) {
        FUSED_CASE(2);
        FUSED_CASE(3);
        FUSED_CASE(4);
        FUSED_CASE(5);
        FUSED_CASE(6);
        FUSED_CASE(7);
        FUSED_CASE(8);
    default:
        return 0;
    }
}

void reduce_many(void *const *dst, int ndst, const void *const *src, int nsrc, int64_t n,
                 enum coll_reduce op, enum ds_dtype dtype)
{
    _Alignas(64) double acc[BLOCK]; /* the widest accumulator */
    _Alignas(64) uint16_t narrow[BLOCK];
    size_t bytes = ds_dtype_bytes(dtype);
    int64_t done = 0;

    if (dtype == DS_F32 && op == COLL_SUM && nsrc <= FUSED &&
        (ndst == 1 || ndst == nsrc - 1 || ndst == nsrc))
        done = sum_f32((float *const *)dst, ndst, (const float *const *)src, nsrc, n);
    for (int64_t at = done; at < n; at += BLOCK) {
        int64_t m = n - at < BLOCK ? n - at : BLOCK;
        const void *y = acc;

        for (int s = 0; s < nsrc; s++)
            accumulate(acc, (const char *)src[s] + (size_t)at * bytes, s == 0, m, op, dtype);
        if (is_half(dtype)) {
            round_half(narrow, (const float *)acc, m, dtype);
            y = narrow;
        }
        for (int d = 0; d < ndst; d++)
            memcpy((char *)dst[d] + (size_t)at * bytes, y, (size_t)m * bytes);
    }
}
