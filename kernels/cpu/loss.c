/* Softmax and cross-entropy. A row is read from memory once: it stays in the second-level cache for
 * the passes maximum, sum of exponentials, gradient. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec.h"

#define ROWS 256 /* rows whose losses are held on the stack before they are added in order */

INLINE float row_max(const void *x, int64_t V, enum ds_dtype dt)
{
    vf m0 = vf_set(-INFINITY), m1 = m0;
    int64_t i = 0;
    float m;

    for (; i + 2 * LANES <= V; i += 2 * LANES) {
        m0 = vf_max(m0, ld(x, i, dt));
        m1 = vf_max(m1, ld(x, i + LANES, dt));
    }
    m = vf_hmax(vf_max(m0, m1));
    for (; i < V; i++)
        m = ld1(x, i, dt) > m ? ld1(x, i, dt) : m;
    return m;
}

INLINE float row_sum_exp(const void *x, int64_t V, float max, enum ds_dtype dt)
{
    vf s0 = {0}, s1 = {0};
    int64_t i = 0;

    for (; i + 2 * LANES <= V; i += 2 * LANES) {
        s0 += vf_exp(ld(x, i, dt) - max);
        s1 += vf_exp(ld(x, i + LANES, dt) - max);
    }
    for (; i < V; i += LANES)
        s0 += (vf)((vi)vf_exp(ldn(x, i, V, dt) - max) & lanes_below(i, V));
    return vf_sum(s0 + s1);
}

/* Returns the row's loss. d NULL: loss only. */
INLINE float row(void *d, const void *x, int32_t target, int64_t V, int64_t ld_row, float seed,
                 enum ds_dtype dt)
{
    float max, lse, loss = 0.0f;

    if (target < 0) {
        if (d)
            memset(d, 0, (size_t)width(ld_row, dt));
        return 0.0f;
    }
    max = row_max(x, V, dt);
    lse = logf(row_sum_exp(x, V, max, dt));
    loss = lse - (ld1(x, target, dt) - max);
    if (!d)
        return loss;
    float p = expf(ld1(x, target, dt) - max - lse), g = (p - 1.0f) * seed;
    vf gv = vf_set(g);

    for (int64_t i = 0; i < V; i += LANES) {
        vf v = vf_exp(ldn(x, i, V, dt) - (max + 0.0f) - lse) * seed;

        stn(d, i, V, v, dt);
    }
    stn(d, target, target + 1, gv, dt);
    memset(at_w(d, V, dt), 0, (size_t)width(ld_row - V, dt));
    return loss;
}

void K(cross_entropy)(double *loss, float *row_loss, void *dlogits, const void *logits,
                      const int32_t *target, int64_t N, int64_t V, int64_t ld_row, float seed,
                      enum ds_dtype dt, struct ds_stream *stream)
{
    for (int64_t n0 = 0; n0 < N; n0 += ROWS) {
        int64_t rows = N - n0 < ROWS ? N - n0 : ROWS;
        float each[ROWS];

#pragma omp parallel for schedule(dynamic, 4) if (rows * V > TEAM_MIN)
        for (int64_t r = 0; r < rows; r++) {
            int64_t n = n0 + r;
            void *d = dlogits ? at_w(dlogits, n * ld_row, dt) : NULL;
            const void *x = at(logits, n * ld_row, dt);

            each[r] = BY_TYPE(dt, row, d, x, target[n], V, ld_row, seed);
        }
        for (int64_t r = 0; r < rows; r++) {
            if (row_loss)
                row_loss[n0 + r] = each[r];
            if (target[n0 + r] >= 0) {
                loss[0] += each[r];
                loss[1] += 1.0;
            }
        }
    }
}
