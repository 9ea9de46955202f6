/* Operators over rows: embedding, norms, bias, loss. */
#include "tests/kernels/cpu.h"

static const int64_t rows[] = {1, 3, 40}, widths[] = {1, 7, 16, 33, 100};

#define FOR_EACH_SHAPE(N, C, dt)                                                                 \
    for (size_t in = 0; in < sizeof rows / sizeof *rows; in++)                                   \
        for (size_t ic = 0; ic < sizeof widths / sizeof *widths; ic++)                           \
            for (size_t it = 0; it < TYPES; it++)                                                       \
                for (int64_t N = rows[in], C = widths[ic], dt = type(it), once = 1; \
                     once; once = 0)

static void embedding(int64_t N, int64_t C, enum ds_dtype dt, int with_pos, float beta)
{
    enum { V = 11, TMAX = 9 };
    struct pool p = {.random = 2};
    struct array *wte = random_array(&p, V * C, dt, 1.0),
                 *wpe = random_array(&p, TMAX * C, dt, 1.0);
    struct array *y = output_array(&p, N * C, dt), *dy = random_array(&p, N * C, dt, 1.0);
    struct array *g =
        beta == 0.0f ? output_array(&p, V * C, DS_F32) : random_array(&p, V * C, DS_F32, 1.0);
    struct array *gp =
        beta == 0.0f ? output_array(&p, TMAX * C, DS_F32) : random_array(&p, TMAX * C, DS_F32, 1.0);
    int32_t *token = random_ints(&p, N, V), *pos = random_ints(&p, N, TMAX);
    void *work = scratch(&p, kernels_cpu.embedding_bwd_work(N, V, TMAX));

    ref_embedding_fwd(y->want, wte->want, with_pos ? wpe->want : NULL, token, pos, N, C);
    kernels_cpu.embedding_fwd(y->stored, wte->stored, with_pos ? wpe->stored : NULL, token, pos, N,
                              C, dt, NULL);
    array_check(y, TOL(dt), "embedding_fwd");
    ref_embedding_bwd(g->want, beta, with_pos ? gp->want : NULL, beta, dy->want, token, pos, N, C,
                      V, TMAX);
    kernels_cpu.embedding_bwd(g->stored, beta, with_pos ? gp->stored : NULL, beta, dy->stored,
                              token, pos, N, C, V, TMAX, dt, work, NULL);
    array_check(g, TOL_F32, "embedding_bwd of tokens");
    if (with_pos)
        array_check(gp, TOL_F32, "embedding_bwd of positions");
    pool_end(&p);
}

void test_embedding(void **state)
{
    FOR_EACH_SHAPE(N, C, dt)
    for (int bits = 0; bits < 4; bits++)
        embedding(N, C, (enum ds_dtype)dt, bits & 1, bits & 2 ? 0.5f : 0.0f);
}

static struct array *gradient(struct pool *p, int64_t n, float beta)
{
    return beta == 0.0f ? output_array(p, n, DS_F32) : random_array(p, n, DS_F32, 1.0);
}

static void layernorm(int64_t N, int64_t C, enum ds_dtype dt, float beta, int dx_add, int bias)
{
    struct pool p = {.random = 3};
    struct array *x = random_array(&p, N * C, dt, 2.0), *w = random_array(&p, C, dt, 1.0);
    struct array *b = random_array(&p, C, dt, 1.0), *y = output_array(&p, N * C, dt);
    struct array *mean = output_array(&p, N, DS_F32), *rstd = output_array(&p, N, DS_F32);
    struct array *dy = random_array(&p, N * C, dt, 1.0);
    struct array *dx = dx_add ? random_array(&p, N * C, dt, 1.0) : output_array(&p, N * C, dt);
    struct array *dw = gradient(&p, C, beta), *db = gradient(&p, C, beta);
    void *work = scratch(&p, kernels_cpu.norm_bwd_work(N, C));
    const float eps = 1e-2f; /* so that a row of one element is no division by noise */

    ref_layernorm_fwd(y->want, mean->want, rstd->want, x->want, w->want, bias ? b->want : NULL, N,
                      C, eps);
    kernels_cpu.layernorm_fwd(y->stored, mean->stored, rstd->stored, x->stored, w->stored,
                              bias ? b->stored : NULL, N, C, eps, dt, NULL);
    array_check(y, TOL(dt), "layernorm_fwd");
    array_check(mean, TOL_F32, "layernorm_fwd mean");
    array_check(rstd, TOL_F32, "layernorm_fwd rstd");
    ref_layernorm_bwd(dx->want, dx_add, dw->want, bias ? db->want : NULL, beta, dy->want, x->want,
                      mean->want, rstd->want, w->want, N, C);
    kernels_cpu.layernorm_bwd(dx->stored, dx_add, dw->stored, bias ? db->stored : NULL, beta,
                              dy->stored, x->stored, mean->stored, rstd->stored, w->stored, N, C,
                              dt, work, NULL);
    if (C > 1) /* for C = 1 dx is zero but for rounding */
        array_check(dx, 2 * TOL(dt), "layernorm_bwd dx");
    array_check(dw, 2 * TOL_F32, "layernorm_bwd dw");
    if (bias)
        array_check(db, TOL_F32, "layernorm_bwd db");
    kernels_cpu.layernorm_bwd(NULL, 0, NULL, NULL, 0.0f, dy->stored, x->stored, mean->stored,
                              rstd->stored, w->stored, N, C, dt, work, NULL);
    pool_end(&p);
}

void test_layernorm(void **state)
{
    FOR_EACH_SHAPE(N, C, dt)
    for (int bits = 0; bits < 8; bits++)
        layernorm(N, C, (enum ds_dtype)dt, bits & 1 ? 1.0f : 0.0f, bits >> 1 & 1, bits >> 2);
}

static void rmsnorm(int64_t N, int64_t C, enum ds_dtype dt, float beta, int dx_add)
{
    struct pool p = {.random = 4};
    struct array *x = random_array(&p, N * C, dt, 2.0), *w = random_array(&p, C, dt, 1.0);
    struct array *y = output_array(&p, N * C, dt), *rstd = output_array(&p, N, DS_F32);
    struct array *dy = random_array(&p, N * C, dt, 1.0);
    struct array *dx = dx_add ? random_array(&p, N * C, dt, 1.0) : output_array(&p, N * C, dt);
    struct array *dw = gradient(&p, C, beta);
    void *work = scratch(&p, kernels_cpu.norm_bwd_work(N, C));
    const float eps = 1e-1f;

    ref_rmsnorm_fwd(y->want, rstd->want, x->want, w->want, N, C, eps);
    kernels_cpu.rmsnorm_fwd(y->stored, rstd->stored, x->stored, w->stored, N, C, eps, dt, NULL);
    array_check(y, TOL(dt), "rmsnorm_fwd");
    array_check(rstd, TOL_F32, "rmsnorm_fwd rstd");
    ref_rmsnorm_bwd(dx->want, dx_add, dw->want, beta, dy->want, x->want, rstd->want, w->want, N, C);
    kernels_cpu.rmsnorm_bwd(dx->stored, dx_add, dw->stored, beta, dy->stored, x->stored,
                            rstd->stored, w->stored, N, C, dt, work, NULL);
    array_check(dx, 2 * TOL(dt), "rmsnorm_bwd dx");
    array_check(dw, 2 * TOL_F32, "rmsnorm_bwd dw");
    pool_end(&p);
}

void test_rmsnorm(void **state)
{
    FOR_EACH_SHAPE(N, C, dt)
    for (int bits = 0; bits < 4; bits++)
        rmsnorm(N, C, (enum ds_dtype)dt, bits & 1 ? 1.0f : 0.0f, bits >> 1);
}

void test_bias(void **state)
{
    FOR_EACH_SHAPE(N, C, dt)
    for (int add = 0; add < 2; add++) {
        struct pool p = {.random = 5};
        struct array *dy = random_array(&p, N * C, (enum ds_dtype)dt, 1.0);
        struct array *db = gradient(&p, C, (float)add);

        ref_bias_bwd(db->want, add, dy->want, N, C);
        kernels_cpu.bias_bwd(db->stored, (float)add, dy->stored, N, C, (enum ds_dtype)dt,
                             scratch(&p, kernels_cpu.norm_bwd_work(N, C)), NULL);
        array_check(db, TOL_F32, "bias_bwd");
        pool_end(&p);
    }
}

static void cross_entropy(int64_t N, int64_t V, int64_t pad, enum ds_dtype dt, int in_place)
{
    struct pool p = {.random = 6};
    struct array *x = random_array(&p, N * (V + pad), dt, 4.0),
                 *d = output_array(&p, N * (V + pad), dt);
    struct array *each = output_array(&p, N, DS_F32);
    int32_t *target = random_ints(&p, N, (int32_t)V);
    double loss[2] = {1.5, 1.0}, want[2] = {1.5, 1.0};
    const float seed = 0.125f;

    for (int64_t n = 1; n < N; n += 3)
        target[n] = -1;
    ref_cross_entropy(want, each->want, d->want, x->want, target, N, V, V + pad, seed);
    kernels_cpu.cross_entropy(loss, NULL, NULL, x->stored, target, N, V, V + pad, seed, dt, NULL);
    assert_true(fabs(loss[0] - want[0]) <= 2e-6 * fabs(want[0]) && loss[1] == want[1]);
    loss[0] = 1.5;
    loss[1] = 1.0;
    if (in_place)
        memcpy(d->stored, x->stored, (size_t)(N * (V + pad)) * ds_dtype_bytes(dt));
    kernels_cpu.cross_entropy(loss, each->stored, d->stored, in_place ? d->stored : x->stored,
                              target, N, V, V + pad, seed, dt, NULL);
    assert_true(fabs(loss[0] - want[0]) <= 2e-6 * fabs(want[0]) && loss[1] == want[1]);
    array_check(each, TOL_F32, "cross_entropy row losses");
    array_check(d, TOL(dt), "cross_entropy gradient");
    pool_end(&p);
}

void test_cross_entropy(void **state)
{
    FOR_EACH_SHAPE(N, V, dt)
    for (int bits = 0; bits < 4; bits++)
        if (V > 1)
            cross_entropy(N, V, bits & 1 ? 5 : 0, (enum ds_dtype)dt, bits >> 1);
    for (size_t k = 0; k < TYPES; k++)
        cross_entropy(300, 1000, 3, type(k), 1);
}
