/* Vectors of LANES floats: 16 with AVX-512, 8 with AVX2, else 4, by GCC's vector extensions, with
 * intrinsics where the compiler needs help. Loads and stores know f32, bf16 and f16; those ending
 * in n take the lanes [i, min(i + LANES, n)): lanes beyond read as zero and are never written.
 *
 * `dt` says how an array is stored; around a hot loop BY_TYPE makes it a constant. */
#ifndef DS_KERNELS_CPU_VEC_H
#define DS_KERNELS_CPU_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined __SSE2__
#include <immintrin.h>
#endif

#include "kernels/kernels.h"

#if defined __AVX512F__
#define LANES 16
#elif defined __AVX2__
#define LANES 8
#else
#define LANES 4
#endif

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef uint16_t vh __attribute__((vector_size(2 * LANES)));

#define INLINE static inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)

/* f(..., dt), where f is INLINE: one copy for each type, so that its loops know it */
#define BY_TYPE(dt, f, ...)                             \
    ((dt) == DS_BF16  ? f(__VA_ARGS__, DS_BF16)         \
     : (dt) == DS_F16 ? f(__VA_ARGS__, DS_F16)          \
                      : f(__VA_ARGS__, DS_F32))

INLINE vf vf_set(float x)
{
    return x - (vf){0};
}

INLINE vi vi_set(int32_t x)
{
    return x - (vi){0};
}

INLINE vu vu_set(uint32_t x)
{
    return x - (vu){0};
}

/* 0, 1, 2 ... */
INLINE vi vi_iota(void)
{
#if LANES == 16
    return (vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif LANES == 8
    return (vi){0, 1, 2, 3, 4, 5, 6, 7};
#else
    return (vi){0, 1, 2, 3};
#endif
}

/* a where the mask (all ones or zero per lane) is set, else b */
INLINE vf vf_select(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

/* a > b ? a : b, so a NaN in either gives b */
INLINE vf vf_max(vf a, vf b)
{
#if LANES == 16
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif LANES == 8
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined __SSE2__
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return vf_select(a > b, a, b);
#endif
}

INLINE vf vf_min(vf a, vf b)
{
#if LANES == 16
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif LANES == 8
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined __SSE2__
    return (vf)_mm_min_ps((__m128)a, (__m128)b);
#else
    return vf_select(a < b, a, b);
#endif
}

INLINE vf vf_sqrt(vf x)
{
#if LANES == 16
    return (vf)_mm512_sqrt_ps((__m512)x);
#elif LANES == 8
    return (vf)_mm256_sqrt_ps((__m256)x);
#elif defined __SSE2__
    return (vf)_mm_sqrt_ps((__m128)x);
#else
    for (int i = 0; i < LANES; i++)
        x[i] = sqrtf(x[i]);
    return x;
#endif
}

INLINE float vf_sum(vf x)
{
#if LANES == 16
    return _mm512_reduce_add_ps((__m512)x);
#else
    float s[LANES];

    memcpy(s, &x, sizeof s);
    for (int w = LANES / 2; w; w /= 2)
        for (int i = 0; i < w; i++)
            s[i] += s[i + w];
    return s[0];
#endif
}

INLINE float vf_hmax(vf x)
{
#if LANES == 16
    return _mm512_reduce_max_ps((__m512)x);
#else
    float s[LANES], m;

    memcpy(s, &x, sizeof s);
    m = s[0];
    for (int i = 1; i < LANES; i++)
        m = s[i] > m ? s[i] : m;
    return m;
#endif
}

INLINE vf vf_load(const float *p)
{
    vf v;

    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

/* f32 to bf16 and back, rounding to nearest even; a NaN stays a (quiet) NaN */
INLINE vf bf16_widen(vh h)
{
#if LANES == 16
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#elif LANES == 8
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16);
#else
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

INLINE vh bf16_round(vf x)
{
#if defined __AVX512BF16__
    return (vh)_mm512_cvtneps_pbh((__m512)x);
#else
    vu u = (vu)x, r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;

    r = (vu)vf_select(x == x, (vf)r, (vf)((u >> 16) | 0x40));
#if LANES == 16
    return (vh)_mm512_cvtepi32_epi16((__m512i)r);
#else
    return __builtin_convertvector(r, vh);
#endif
#endif
}

/* The same for f16. What is subnormal there is normal in f32 and passes through flush-to-zero: F16C
 * does not heed the mode, and the code for want of it never holds one in a subnormal float. */
#if LANES > 4
#define F16_INLINE INLINE
#else
#define F16_INLINE __attribute__((noinline, unused)) static /* long, and in many places */
#endif

F16_INLINE vf f16_widen(vh h)
{
#if LANES == 16
    return (vf)_mm512_cvtph_ps((__m256i)h);
#elif LANES == 8
    return (vf)_mm256_cvtph_ps((__m128i)h);
#else
    vu u = __builtin_convertvector(h, vu), a = u & 0x7fff, wide = a << 13;
    vf tiny = __builtin_convertvector((vi)a, vf) * 0x1p-24f;
    vu special = (vu)((vi)a >= 0x7c00), quiet = (vu)((vi)a > 0x7c00) & 0x400000;
    vu big = (wide + (112 << 23) + (special & (112 << 23))) | quiet;

    return (vf)((vu)vf_select((vi)a < 0x400, tiny, (vf)big) | (u & 0x8000) << 16);
#endif
}

F16_INLINE vh f16_round(vf x)
{
#if LANES == 16
    return (vh)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#elif LANES == 8
    return (vh)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#else
    vu u = (vu)x, a = u & 0x7fffffff, r = (a - (112u << 23) + 0xfff + ((a >> 13) & 1)) >> 13;
    vu tiny = (vu)((vf)a + 0.5f) - 0x3f000000; /* floats in [0.5, 1): steps of 2^-24 */
    vu nan = 0x7e00 | ((a >> 13) & 0x3ff);

    r = (vu)vf_select((vi)a < 113 << 23, (vf)tiny, (vf)r); /* below 2^-14 */
    r = (vu)vf_select((vi)a >= 143 << 23, (vf)vu_set(0x7c00), (vf)r); /* from 2^16 on */
    r = (vu)vf_select(x == x, (vf)r, (vf)nan);
    return __builtin_convertvector(r | ((u >> 16) & 0x8000), vh);
#endif
}

INLINE vf vh_widen(vh h, enum ds_dtype dt)
{
    return dt == DS_F16 ? f16_widen(h) : bf16_widen(h);
}

INLINE vh vh_round(vf x, enum ds_dtype dt)
{
    return dt == DS_F16 ? f16_round(x) : bf16_round(x);
}

/* LANES elements of an array from element i on */
INLINE vf ld(const void *p, int64_t i, enum ds_dtype dt)
{
    vh h;

    if (dt == DS_F32)
        return vf_load((const float *)p + i);
    memcpy(&h, (const uint16_t *)p + i, sizeof h);
    return vh_widen(h, dt);
}

INLINE void st(void *p, int64_t i, vf v, enum ds_dtype dt)
{
    if (dt == DS_F32) {
        vf_store((float *)p + i, v);
    } else {
        vh h = vh_round(v, dt);

        memcpy((uint16_t *)p + i, &h, sizeof h);
    }
}

INLINE vf ldn(const void *p, int64_t i, int64_t n, enum ds_dtype dt)
{
    if (LIKELY(n - i >= LANES))
        return ld(p, i, dt);
    if (dt == DS_F32) {
        vf v = {0};

        memcpy(&v, (const float *)p + i, (size_t)(n - i) * sizeof(float));
        return v;
    } else {
        vh h = {0};

        memcpy(&h, (const uint16_t *)p + i, (size_t)(n - i) * sizeof(uint16_t));
        return vh_widen(h, dt);
    }
}

INLINE void stn(void *p, int64_t i, int64_t n, vf v, enum ds_dtype dt)
{
    if (LIKELY(n - i >= LANES)) {
        st(p, i, v, dt);
    } else if (dt == DS_F32) {
        memcpy((float *)p + i, &v, (size_t)(n - i) * sizeof(float));
    } else {
        vh h = vh_round(v, dt);

        memcpy((uint16_t *)p + i, &h, (size_t)(n - i) * sizeof(uint16_t));
    }
}

/* A store past the caches to an address aligned to the vector, for what is not read again soon;
 * ordered before later stores by stream_end. */
INLINE void vf_stream(float *p, vf v)
{
#if LANES == 16
    _mm512_stream_ps(p, (__m512)v);
#elif LANES == 8
    _mm256_stream_ps(p, (__m256)v);
#else
    vf_store(p, v);
#endif
}

INLINE void stream_end(void)
{
#if defined __SSE2__
    _mm_sfence();
#endif
}

/* All ones in the lanes of [i, n). */
INLINE vi lanes_below(int64_t i, int64_t n)
{
    return n - i >= LANES ? vi_set(-1) : vi_iota() < vi_set((int32_t)(n - i));
}

/* Element j of an array */
INLINE float ld1(const void *p, int64_t j, enum ds_dtype dt)
{
    if (dt == DS_F32)
        return ((const float *)p)[j];
    return vh_widen((vh){((const uint16_t *)p)[j]}, dt)[0];
}

/* Bytes of n elements */
INLINE int64_t width(int64_t n, enum ds_dtype dt)
{
    return n * (dt == DS_F32 ? 4 : 2);
}

/* The address of element i */
INLINE const void *at(const void *p, int64_t i, enum ds_dtype dt)
{
    return (const char *)p + width(i, dt);
}

INLINE void *at_w(void *p, int64_t i, enum ds_dtype dt)
{
    return (char *)p + width(i, dt);
}

/* exp(x) to 1.3 ulp: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for exp(r), n added to the
 * exponent. Below -87.33 it is 0, above 88.72 it is exp(88.72); NaN stays NaN. */
INLINE vf vf_exp(vf x)
{
    const vf magic = vf_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    vi live = ~(x < -87.336540f);         /* true for NaN too */
    vf c = vf_min(vf_set(88.722835f), vf_max(vf_set(-87.336540f), x));
    vf t = c * 1.44269504f + magic, n = t - magic, r = c - n * 0.693145752f, p;

    r = r - n * 1.42860677e-6f;
    p = r * 1.37805939e-3f + 8.37312452e-3f;
    p = p * r + 4.16695364e-2f;
    p = p * r + 1.66664720e-1f;
    p = p * r + 4.99999851e-1f;
    p = p * (r * r) + (r + 1.0f);
    return (vf)(((vi)p + ((vi)t << 23)) & live);
}

/* 1 / (1 + exp(-x)) */
INLINE vf vf_sigmoid(vf x)
{
    return 1.0f / (1.0f + vf_exp(-x));
}

#endif
