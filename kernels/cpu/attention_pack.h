/* How attention lays out its operands for tile.h, and the masks of a block of scores.
 *
 * An element is 32 bits: a float, or with PAIRS two bf16 along the product's inner dimension.
 * Everything is padded with zeros: tokens to a multiple of BLOCK (Tp), head width to a multiple of
 * LANES (Dp). */
#ifndef DS_KERNELS_CPU_ATTENTION_PACK_H
#define DS_KERNELS_CPU_ATTENTION_PACK_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/vec.h"

#define BLOCK 64 /* queries and keys of a block */
#if defined __AVX512BF16__
#define PAIRS_POSSIBLE 1
#else
#define PAIRS_POSSIBLE 0
#endif

struct shape {
    int64_t T, D, Tp, Dp;
    int64_t De;  /* elements of a row of D: D, or D / 2 rounded up with pairs */
    int64_t row; /* numbers between tokens of qkv */
    enum ds_dtype dt;
    int pairs;
};

static inline struct shape shape_of(const struct ds_attention *a, enum ds_dtype dt)
{
    struct shape s = {.T = a->T, .D = a->D, .dt = dt};

    s.pairs = PAIRS_POSSIBLE && dt == DS_BF16;
    s.Tp = (a->T + BLOCK - 1) / BLOCK * BLOCK;
    s.Dp = (a->D + LANES - 1) / LANES * LANES;
    s.De = s.pairs ? (a->D + 1) / 2 : a->D;
    s.row = (a->H + 2 * a->G) * a->D;
    return s;
}

/* Element e of a row of n numbers: the number, or a pair of bf16 */
INLINE uint32_t element(const void *p, int64_t e, int64_t n, enum ds_dtype dt, int pairs)
{
    uint32_t u;

    if (pairs) {
        const uint16_t *h = p;

        return h[2 * e] | (2 * e + 1 < n ? (uint32_t)h[2 * e + 1] << 16 : 0);
    }
    float f = ld1(p, e, dt);

    memcpy(&u, &f, sizeof u);
    return u;
}

INLINE void transposed(uint32_t *to, const void *x, int64_t row, const struct shape *s,
                       enum ds_dtype dt)
{
    for (int64_t t0 = 0; t0 < s->Tp; t0 += 16)
        for (int64_t e = 0; e < s->De; e++)
            for (int64_t t = t0; t < t0 + 16; t++)
                to[e * s->Tp + t] =
                    t < s->T ? element(at(x, t * row, dt), e, s->D, dt, s->pairs) : 0;
}

/* to (De, Tp) = rows (T, D) transposed: the right operand of a product over D */
static inline void pack_transposed(uint32_t *to, const void *x, int64_t row, const struct shape *s)
{
    BY_TYPE(s->dt, transposed, to, x, row, s);
}

/* to (Tp, De) = rows (T, D): the left operand of a product over D */
static inline void pack_rows(uint32_t *to, const void *x, int64_t row, const struct shape *s)
{
    for (int64_t t = 0; t < s->T; t++)
        for (int64_t e = 0; e < s->De; e++)
            to[t * s->De + e] = element(at(x, t * row, s->dt), e, s->D, s->dt, s->pairs);
    memset(to + s->T * s->De, 0, (size_t)((s->Tp - s->T) * s->De) * sizeof *to);
}

/* to (Tp, Dp) floats, or (Tp / 2, Dp) pairs of neighbouring rows: the right operand of a product
 * over tokens */
static inline void pack_tokens(uint32_t *to, const void *x, int64_t row, const struct shape *s)
{
    int64_t rows = s->pairs ? s->Tp / 2 : s->Tp;

    memset(to, 0, (size_t)(rows * s->Dp) * sizeof *to);
    for (int64_t t = 0; t < s->T; t++) {
        const void *from = at(x, t * row, s->dt);

        if (s->pairs) {
            uint16_t *h = (uint16_t *)(to + t / 2 * s->Dp) + t % 2;

            for (int64_t d = 0; d < s->D; d++)
                h[2 * d] = ((const uint16_t *)from)[d];
        } else {
            for (int64_t d = 0; d < s->D; d += LANES)
                stn(to + t * s->Dp, d, s->D, ldn(from, d, s->D, s->dt), DS_F32);
        }
    }
}

/* Scores (BLOCK, BLOCK) of probabilities as the left operand of a product over keys: in place for
 * floats, rounded to bf16 rows for pairs. */
static inline const uint32_t *block_rows(uint32_t *to, const float *p, int pairs, int64_t *row)
{
    *row = pairs ? BLOCK / 2 : BLOCK;
    if (!pairs)
        return (const uint32_t *)p;
    for (int64_t i = 0; i < BLOCK * BLOCK; i += LANES)
        st(to, i, vf_load(p + i), DS_BF16);
    return to;
}

/* The same as the left operand of a product over queries: element (query pair, key). Its strides as
 * A (key, query) are 1 and BLOCK either way. */
static inline const uint32_t *block_columns(uint32_t *to, const float *p, int pairs)
{
    if (!pairs)
        return (const uint32_t *)p;
#if PAIRS_POSSIBLE
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

    for (int64_t i = 0; i < BLOCK; i += 2)
        for (int64_t j = 0; j < BLOCK; j += LANES) {
            const float *even = p + i * BLOCK + j;
            __m512i h =
                (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(even + BLOCK), _mm512_loadu_ps(even));

            _mm512_storeu_si512(to + i / 2 * BLOCK + j, _mm512_permutexvar_epi16(order, h));
        }
#endif
    return to;
}

/* First key that query i may see, and the last is i itself. A row of padding sees nothing. */
INLINE int64_t first_key(const int32_t *doc, int64_t i, int64_t T)
{
    return i >= T ? i + 1 : doc ? doc[i] : 0;
}

/* Lanes j .. of query i that it may see */
INLINE vi visible(int64_t first, int64_t i, int64_t j)
{
    vi key = vi_iota() + (int32_t)j;

    return (key >= (int32_t)first) & (key <= (int32_t)i);
}

/* First block of keys that a block of queries can see anything of */
static inline int64_t first_block(const int32_t *doc, int64_t i0, int64_t T)
{
    int64_t first = i0;

    if (!doc)
        return 0;
    for (int64_t i = i0; i < i0 + BLOCK && i < T; i++)
        first = doc[i] < first ? doc[i] : first;
    return first < 0 ? 0 : first / BLOCK * BLOCK;
}

/* Whether every query of the block at i0 sees every key of the block at j0 */
static inline int all_visible(const int32_t *doc, int64_t i0, int64_t j0, int64_t T)
{
    if (j0 + BLOCK - 1 > i0 || i0 + BLOCK > T)
        return 0;
    for (int64_t i = i0; doc && i < i0 + BLOCK; i++)
        if (doc[i] > j0)
            return 0;
    return 1;
}

/* Factors of dropout for the keys [j0, j0 + BLOCK) of query i: element = i * T + key. */
static inline void mask_row(float factor[BLOCK], const struct mask_key *key, int64_t i, int64_t j0,
                            int64_t T)
{
    uint64_t element0 = (uint64_t)(i * T + j0);
    float f[BLOCK + 4 * LANES + 4];

    for (int64_t e = 0; e < BLOCK + 4; e += 4 * LANES) {
        vu word[4];

        philox_words(key, (uint32_t)(element0 / 4 + (uint64_t)e / 4), word);
        for (int j = 0; j < 4; j++)
            vf_store(f + e + j * LANES, mask_factor(key, word[j]));
    }
    memcpy(factor, f + element0 % 4, BLOCK * sizeof *factor);
}

#endif
