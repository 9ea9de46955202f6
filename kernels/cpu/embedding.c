/* Embedding: rows of wte (and wpe) by token (and position).
 *
 * Backward sums each row of the table in token order whatever the thread count: the tokens of a row
 * are chained through `next`, built backwards by one thread, and a row belongs to one thread. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec.h"

INLINE void forward(void *y, const void *wte, const void *wpe, const int32_t *token,
                    const int32_t *pos, int64_t N, int64_t C, int bf)
{
#pragma omp parallel for if (N * C > TEAM_MIN)
    for (int64_t n = 0; n < N; n++) {
        const void *e = at(wte, token[n] * C, bf), *p = wpe ? at(wpe, pos[n] * C, bf) : NULL;
        void *out = at_w(y, n * C, bf);

        if (!p) {
            memcpy(out, e, (size_t)C * (bf ? 2 : 4));
            continue;
        }
        for (int64_t c = 0; c < C; c += LANES)
            stn(out, c, C, ldn(e, c, C, bf) + ldn(p, c, C, bf), bf);
    }
}

void K(embedding_fwd)(void *y, const void *wte, const void *wpe, const int32_t *token,
                      const int32_t *pos, int64_t N, int64_t C, enum ds_dtype dt,
                      struct ds_stream *stream)
{
    if (dt == DS_BF16)
        forward(y, wte, wpe, token, pos, N, C, 1);
    else
        forward(y, wte, wpe, token, pos, N, C, 0);
}

size_t K(embedding_bwd_work)(int64_t N, int64_t V, int64_t Tmax)
{
    return (size_t)(N + (V > Tmax ? V : Tmax)) * sizeof(int32_t);
}

INLINE void row_add(float *g, int fresh, float beta, const void *dy, int64_t C, int bf)
{
    for (int64_t c = 0; c < C; c += LANES) {
        vf d = ldn(dy, c, C, bf);

        stn(g, c, C, fresh ? d : ldn(g, c, C, 0) * beta + d, 0);
    }
}

static void row_scale(float *g, float beta, int64_t C)
{
    if (beta == 0.0f)
        memset(g, 0, (size_t)C * sizeof *g);
    else if (beta != 1.0f)
        for (int64_t c = 0; c < C; c++)
            g[c] *= beta;
}

/* g (R, C) = beta * g + rows of dy (N, C) added at index */
INLINE void scatter(float *g, float beta, const void *dy, const int32_t *index, int64_t N,
                    int64_t C, int64_t R, int32_t *work, int bf)
{
    int32_t *next = work, *first = work + N;

    memset(first, -1, (size_t)R * sizeof *first);
    for (int64_t n = N - 1; n >= 0; n--) {
        next[n] = first[index[n]];
        first[index[n]] = (int32_t)n;
    }
#pragma omp parallel for schedule(dynamic, 16) if ((N + R) * C > TEAM_MIN)
    for (int64_t r = 0; r < R; r++) {
        if (first[r] < 0)
            row_scale(g + r * C, beta, C);
        for (int32_t n = first[r]; n >= 0; n = next[n]) {
            int head = n == first[r];

            row_add(g + r * C, head && beta == 0.0f, head ? beta : 1.0f, at(dy, n * C, bf), C, bf);
        }
    }
}

void K(embedding_bwd)(float *dwte, float beta_wte, float *dwpe, float beta_wpe, const void *dy,
                      const int32_t *token, const int32_t *pos, int64_t N, int64_t C, int64_t V,
                      int64_t Tmax, enum ds_dtype dt, void *work, struct ds_stream *stream)
{
    if (dt == DS_BF16) {
        if (dwte)
            scatter(dwte, beta_wte, dy, token, N, C, V, work, 1);
        if (dwpe)
            scatter(dwpe, beta_wpe, dy, pos, N, C, Tmax, work, 1);
    } else {
        if (dwte)
            scatter(dwte, beta_wte, dy, token, N, C, V, work, 0);
        if (dwpe)
            scatter(dwpe, beta_wpe, dy, pos, N, C, Tmax, work, 0);
    }
}
