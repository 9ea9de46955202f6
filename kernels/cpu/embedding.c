/* Embedding: rows of wte (and wpe) by token (and position).
 *
 * Backward sums each row of the table in token order whatever the thread count: the tokens of a row
 * are chained through `next`, built backwards by one thread, and a row belongs to one thread. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec.h"

INLINE void row_sum(void *y, const void *e, const void *p, int64_t C, enum ds_dtype dt)
{
    for (int64_t c = 0; c < C; c += LANES)
        stn(y, c, C, ldn(e, c, C, dt) + ldn(p, c, C, dt), dt);
}

void K(embedding_fwd)(void *y, const void *wte, const void *wpe, const int32_t *token,
                      const int32_t *pos, int64_t N, int64_t C, enum ds_dtype dt,
                      struct ds_stream *stream)
{
#pragma omp parallel for if (N * C > TEAM_MIN)
    for (int64_t n = 0; n < N; n++) {
        const void *e = at(wte, token[n] * C, dt);
        void *out = at_w(y, n * C, dt);

        if (wpe)
            BY_TYPE(dt, row_sum, out, e, at(wpe, pos[n] * C, dt), C);
        else
            memcpy(out, e, (size_t)width(C, dt));
    }
}

size_t K(embedding_bwd_work)(int64_t N, int64_t V, int64_t Tmax)
{
    return (size_t)(N + (V > Tmax ? V : Tmax)) * sizeof(int32_t);
}

INLINE void row_add(float *g, int fresh, float beta, const void *dy, int64_t C, enum ds_dtype dt)
{
    for (int64_t c = 0; c < C; c += LANES) {
        vf d = ldn(dy, c, C, dt);

        stn(g, c, C, fresh ? d : ldn(g, c, C, DS_F32) * beta + d, DS_F32);
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
static void scatter(float *g, float beta, const void *dy, const int32_t *index, int64_t N,
                    int64_t C, int64_t R, int32_t *work, enum ds_dtype dt)
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
            int head = n == first[r], fresh = head && beta == 0.0f;

            BY_TYPE(dt, row_add, g + r * C, fresh, head ? beta : 1.0f, at(dy, n * C, dt), C);
        }
    }
}

void K(embedding_bwd)(float *dwte, float beta_wte, float *dwpe, float beta_wpe, const void *dy,
                      const int32_t *token, const int32_t *pos, int64_t N, int64_t C, int64_t V,
                      int64_t Tmax, enum ds_dtype dt, void *work, struct ds_stream *stream)
{
    if (dwte)
        scatter(dwte, beta_wte, dy, token, N, C, V, work, dt);
    if (dwpe)
        scatter(dwpe, beta_wpe, dy, pos, N, C, Tmax, work, dt);
}
