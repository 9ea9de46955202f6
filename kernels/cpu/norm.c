/* LayerNorm, RMSNorm and the gradient of a bias: everything that sums over rows.
 *
 * Sums over rows are made in blocks of rows whose number depends on N only; each block sums into
 * its own partial row in `work`, and the partials are added in order. So results do not depend on
 * the thread count. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec.h"

#include <string.h>

/* Row blocks: at most 32, and no less than 8 rows each. */
static int64_t row_blocks(int64_t N)
{
    int64_t blocks = (N + 7) / 8;

    return blocks < 32 ? blocks : 32;
}

size_t K(norm_bwd_work)(int64_t N, int64_t C)
{
    return (size_t)(2 * row_blocks(N) * C) * sizeof(float);
}

/* g (C) = beta * g + sum over blocks of part (blocks, C), whose rows lie `stride` apart */
static void add_partials(float *g, float beta, const float *part, int64_t blocks, int64_t stride,
                         int64_t C)
{
    for (int64_t c = 0; c < C; c += LANES) {
        vf s = ldn(part, c, C, DS_F32);

        for (int64_t k = 1; k < blocks; k++)
            s += ldn(part + k * stride, c, C, DS_F32);
        if (beta != 0.0f)
            s += ldn(g, c, C, DS_F32) * beta;
        stn(g, c, C, s, DS_F32);
    }
}

INLINE float row_sum(const void *x, int64_t C, enum ds_dtype dt)
{
    vf s0 = {0}, s1 = {0};
    int64_t c = 0;

    for (; c + 2 * LANES <= C; c += 2 * LANES) {
        s0 += ld(x, c, dt);
        s1 += ld(x, c + LANES, dt);
    }
    for (; c < C; c += LANES)
        s0 += ldn(x, c, C, dt);
    return vf_sum(s0 + s1);
}

/* sum of (x - mean)^2 */
INLINE float row_square(const void *x, float mean, int64_t C, enum ds_dtype dt)
{
    vf s0 = {0}, s1 = {0};
    int64_t c = 0;

    for (; c + 2 * LANES <= C; c += 2 * LANES) {
        vf d0 = ld(x, c, dt) - mean, d1 = ld(x, c + LANES, dt) - mean;

        s0 += d0 * d0;
        s1 += d1 * d1;
    }
    for (; c < C; c += LANES) {
        vf d = (vf)((vi)(ldn(x, c, C, dt) - mean) & lanes_below(c, C));

        s0 += d * d;
    }
    return vf_sum(s0 + s1);
}

INLINE void layernorm_row(void *y, float *mean, float *rstd, const void *x, const void *w,
                          const void *b, int64_t C, float eps, enum ds_dtype dt)
{
    float m = row_sum(x, C, dt) / (float)C;
    float r = 1.0f / sqrtf(row_square(x, m, C, dt) / (float)C + eps);

    for (int64_t c = 0; c < C; c += LANES) {
        vf v = (ldn(x, c, C, dt) - m) * r * ldn(w, c, C, dt);

        stn(y, c, C, b ? v + ldn(b, c, C, dt) : v, dt);
    }
    *mean = m;
    *rstd = r;
}

void K(layernorm_fwd)(void *y, float *mean, float *rstd, const void *x, const void *w,
                      const void *b, int64_t N, int64_t C, float eps, enum ds_dtype dt,
                      struct ds_stream *stream)
{
#pragma omp parallel for if (N * C > TEAM_MIN)
    for (int64_t n = 0; n < N; n++)
        BY_TYPE(dt, layernorm_row, at_w(y, n * C, dt), mean + n, rstd + n, at(x, n * C, dt), w, b,
                C, eps);
}

INLINE void rmsnorm_row(void *y, float *rstd, const void *x, const void *w, int64_t C, float eps,
                        enum ds_dtype dt)
{
    float r = 1.0f / sqrtf(row_square(x, 0.0f, C, dt) / (float)C + eps);

    for (int64_t c = 0; c < C; c += LANES)
        stn(y, c, C, ldn(x, c, C, dt) * r * ldn(w, c, C, dt), dt);
    *rstd = r;
}

void K(rmsnorm_fwd)(void *y, float *rstd, const void *x, const void *w, int64_t N, int64_t C,
                    float eps, enum ds_dtype dt, struct ds_stream *stream)
{
#pragma omp parallel for if (N * C > TEAM_MIN)
    for (int64_t n = 0; n < N; n++)
        BY_TYPE(dt, rmsnorm_row, at_w(y, n * C, dt), rstd + n, at(x, n * C, dt), w, C, eps);
}

/* What backward of either norm reads and writes; mean NULL is RMSNorm. */
struct backward {
    void *dx;
    int dx_add, want_w, want_b;
    const void *dy, *x, *w;
    const float *mean, *rstd;
    int64_t N, C;
};

/* One row: with h = (x - mean) rstd and d = dy w,
 *   dx = rstd (d - mean(d) - h mean(d h)), where RMSNorm lacks mean(d); dw += dy h; db += dy. */
INLINE void backward_row(const struct backward *a, int64_t n, float *dw, float *db,
                         enum ds_dtype dt)
{
    const void *x = at(a->x, n * a->C, dt), *dy = at(a->dy, n * a->C, dt);
    float m = a->mean ? a->mean[n] : 0.0f, r = a->rstd[n], md, mdh;
    vf sd = {0}, sdh = {0};
    int64_t C = a->C;

    for (int64_t c = 0; c < C; c += LANES) {
        vf g = ldn(dy, c, C, dt), h = (ldn(x, c, C, dt) - m) * r, d = g * ldn(a->w, c, C, dt);

        sd += d;
        sdh += d * h; /* lanes beyond C: d is 0 */
        if (dw)
            stn(dw, c, C, ldn(dw, c, C, DS_F32) + g * h, DS_F32);
        if (db)
            stn(db, c, C, ldn(db, c, C, DS_F32) + g, DS_F32);
    }
    if (!a->dx)
        return;
    md = a->mean ? vf_sum(sd) / (float)C : 0.0f;
    mdh = vf_sum(sdh) / (float)C;
    for (int64_t c = 0; c < C; c += LANES) {
        vf h = (ldn(x, c, C, dt) - m) * r, d = ldn(dy, c, C, dt) * ldn(a->w, c, C, dt);
        void *dx = at_w(a->dx, n * C, dt);
        vf v = (d - md - h * mdh) * r;

        stn(dx, c, C, a->dx_add ? v + ldn(dx, c, C, dt) : v, dt);
    }
}

/* Row blocks of backward; part (blocks, 2, C): dw then db of each block */
static void backward_rows(const struct backward *a, float *part, enum ds_dtype dt)
{
    int64_t blocks = row_blocks(a->N), C = a->C;

#pragma omp parallel for schedule(static) if (a->N * C > TEAM_MIN)
    for (int64_t k = 0; k < blocks; k++) {
        float *dw = a->want_w ? part + 2 * k * C : NULL,
              *db = a->want_b ? part + (2 * k + 1) * C : NULL;

        if (dw)
            memset(dw, 0, (size_t)C * sizeof *dw);
        if (db)
            memset(db, 0, (size_t)C * sizeof *db);
        for (int64_t n = a->N * k / blocks; n < a->N * (k + 1) / blocks; n++)
            BY_TYPE(dt, backward_row, a, n, dw, db);
    }
}

void K(layernorm_bwd)(void *dx, int dx_add, float *dw, float *db, float beta, const void *dy,
                      const void *x, const float *mean, const float *rstd, const void *w, int64_t N,
                      int64_t C, enum ds_dtype dt, void *work, struct ds_stream *stream)
{
    struct backward a = {dx, dx_add, dw != NULL, db != NULL, dy, x, w, mean, rstd, N, C};

    backward_rows(&a, work, dt);
    if (dw)
        add_partials(dw, beta, work, row_blocks(N), 2 * C, C);
    if (db)
        add_partials(db, beta, (float *)work + C, row_blocks(N), 2 * C, C);
}

void K(rmsnorm_bwd)(void *dx, int dx_add, float *dw, float beta, const void *dy, const void *x,
                    const float *rstd, const void *w, int64_t N, int64_t C, enum ds_dtype dt,
                    void *work, struct ds_stream *stream)
{
    struct backward a = {dx, dx_add, dw != NULL, 0, dy, x, w, NULL, rstd, N, C};

    backward_rows(&a, work, dt);
    if (dw)
        add_partials(dw, beta, work, row_blocks(N), 2 * C, C);
}

/* part += each of so many rows from the n-th on, in order */
INLINE void add_rows(float *part, const void *dy, int64_t n, int rows, int64_t C, enum ds_dtype dt)
{
    for (int64_t c = 0; c < C; c += LANES) {
        vf s = ldn(part, c, C, DS_F32);

        for (int r = 0; r < rows; r++)
            s += ldn(at(dy, (n + r) * C, dt), c, C, dt);
        stn(part, c, C, s, DS_F32);
    }
}

/* Sum over the rows [lo, hi) of dy, which is read in the order of memory; the sums of a block stay in the cache */
INLINE void column_sums(float *part, const void *dy, int64_t lo, int64_t hi, int64_t C,
                        enum ds_dtype dt)
{
    int64_t n = lo;

    memset(part, 0, (size_t)C * sizeof *part);
    for (; n + 4 <= hi; n += 4)
        add_rows(part, dy, n, 4, C, dt);
    for (; n < hi; n++)
        add_rows(part, dy, n, 1, C, dt);
}

void K(bias_bwd)(float *db, float beta, const void *dy, int64_t N, int64_t C, enum ds_dtype dt,
                 void *work, struct ds_stream *stream)
{
    int64_t blocks = row_blocks(N);
    float *part = work;

#pragma omp parallel for schedule(static) if (N * C > TEAM_MIN)
    for (int64_t k = 0; k < blocks; k++) {
        int64_t lo = N * k / blocks, hi = N * (k + 1) / blocks;

        BY_TYPE(dt, column_sums, part + k * C, dy, lo, hi, C);
    }
    add_partials(db, beta, part, blocks, C, C);
}
