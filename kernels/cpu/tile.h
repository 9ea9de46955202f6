/* The small matrix product inside attention: C (M, N) = or += A (M, K) B (K, N).
 *
 * Operands are arrays of 32-bit elements: one float, or where PAIRS two bf16 that follow each other
 * along K (then K counts pairs). B's rows lie contiguous along N, A is addressed by two strides, so
 * a transposed A costs nothing. M is a multiple of TILE_M, N of LANES. */
#ifndef DS_KERNELS_CPU_TILE_H
#define DS_KERNELS_CPU_TILE_H

#include "kernels/cpu/vec.h"

#define TILE_M 4
#if LANES == 16
#define TILE_V 4 /* vectors of columns per register tile */
#else
#define TILE_V 2
#endif

/* s += a * b per lane; the accumulators must stay in registers, hence the unrolled loops below */
INLINE vf fma_elements(vf s, vu a, vu b, int pairs)
{
#if defined __AVX512BF16__
    if (pairs)
        return (vf)_mm512_dpbf16_ps((__m512)s, (__m512bh)a, (__m512bh)b);
#endif
    return s + (vf)a * (vf)b;
}

INLINE void tile(float *c, int64_t ldc, const uint32_t *a, int64_t row, int64_t col,
                 const uint32_t *b, int64_t ldb, int64_t K, int add, int nv, int pairs)
{
    vf s[TILE_M][TILE_V];

#pragma GCC unroll 8
    for (int i = 0; i < TILE_M; i++)
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            s[i][j] = add ? vf_load(c + i * ldc + j * LANES) : (vf){0};
#pragma GCC unroll 1
    for (int64_t k = 0; k < K; k++) {
        vu right[TILE_V];

#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            memcpy(&right[j], b + k * ldb + j * LANES, sizeof right[j]);
#pragma GCC unroll 8
        for (int i = 0; i < TILE_M; i++) {
            vu left = vu_set(a[i * row + k * col]);

#pragma GCC unroll 8
            for (int j = 0; j < nv; j++)
                s[i][j] = fma_elements(s[i][j], left, right[j], pairs);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE_M; i++)
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            vf_store(c + i * ldc + j * LANES, s[i][j]);
}

/* A's element (m, k) is a[m * row + k * col]. */
static inline void tile_product(float *c, int64_t ldc, const uint32_t *a, int64_t row, int64_t col,
                                const uint32_t *b, int64_t ldb, int64_t M, int64_t N, int64_t K,
                                int add, int pairs)
{
    for (int64_t n = 0; n < N;) {
        int nv = N - n >= TILE_V * LANES ? TILE_V : 1;

        for (int64_t m = 0; m < M; m += TILE_M) {
            float *cc = c + m * ldc + n;

            if (nv == TILE_V && pairs)
                tile(cc, ldc, a + m * row, row, col, b + n, ldb, K, add, TILE_V, 1);
            else if (nv == TILE_V)
                tile(cc, ldc, a + m * row, row, col, b + n, ldb, K, add, TILE_V, 0);
            else if (pairs)
                tile(cc, ldc, a + m * row, row, col, b + n, ldb, K, add, 1, 1);
            else
                tile(cc, ldc, a + m * row, row, col, b + n, ldb, K, add, 1, 0);
        }
        n += nv * LANES;
    }
}

#endif
