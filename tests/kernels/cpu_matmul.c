/* Matrix products: every layout, type, bias, beta, padding and batch against the reference. */
#include "tests/kernels/cpu.h"

static int64_t padded(int64_t stored_rows, int64_t row, int64_t batch)
{
    return stored_rows * row * batch;
}

static void product(const struct ds_matmul *m, float beta)
{
    struct pool p = {.random = 1};
    struct ds_plans *plans = kernels_cpu.plans_create();
    size_t bytes = 0;
    char why[256] = "";
    const struct ds_plan *plan = kernels_cpu.matmul_plan(plans, m, &bytes, why);
    int64_t na = padded(m->ta ? m->k : m->m, m->lda ? m->lda : m->ta ? m->m : m->k, m->batch);
    int64_t nb = padded(m->tb ? m->n : m->k, m->ldb ? m->ldb : m->tb ? m->k : m->n, m->batch);
    int64_t nc = padded(m->m, m->ldc ? m->ldc : m->n, m->batch);
    struct array *a = random_array(&p, na, m->ab, 1.0), *b = random_array(&p, nb, m->ab, 1.0);
    struct array *bias = random_array(&p, m->n, m->ab, 1.0);
    struct array *c =
        beta == 0.0f && !m->ldc ? output_array(&p, nc, m->c) : random_array(&p, nc, m->c, 1.0);
    int with_bias = m->epilogue == DS_EPI_BIAS;

    if (!plan)
        fail_msg("%s", why);
    ref_matmul(c->want, a->want, b->want, with_bias ? bias->want : NULL, beta, m);
    assert_int_equal(kernels_cpu.matmul_run(plan, a->stored, b->stored, c->stored,
                                            with_bias ? bias->stored : NULL, beta,
                                            scratch(&p, bytes), NULL),
                     0);
    /* products of k terms: the error grows with sqrt(k) */
    array_check(c, m->c != DS_F32 ? TOL(m->c) : 1e-6 * sqrt((double)m->k), "matmul");
    assert_ptr_equal(kernels_cpu.matmul_plan(plans, m, NULL, why), plan);
    kernels_cpu.plans_destroy(plans);
    pool_end(&p);
}

void test_matmul(void **state)
{
    static const int64_t sizes[][3] = {
        {1, 1, 1}, {3, 5, 7}, {17, 33, 65}, {64, 96, 48}, {1, 130, 31}};
    static const enum ds_dtype types[][2] = {{DS_F32, DS_F32},
                                             {DS_BF16, DS_F32},
                                             {DS_BF16, DS_BF16},
                                             {DS_F16, DS_F32},
                                             {DS_F16, DS_F16}};

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int t = 0; t < 5; t++)
            for (int bits = 0; bits < 32; bits++) {
                struct ds_matmul m = {.m = sizes[s][0],
                                      .n = sizes[s][1],
                                      .k = sizes[s][2],
                                      .batch = 1,
                                      .ta = bits & 1,
                                      .tb = bits >> 1 & 1,
                                      .ab = types[t][0],
                                      .c = types[t][1],
                                      .accumulate = 1};

                m.epilogue = bits & 4 ? DS_EPI_BIAS : DS_EPI_NONE;
                if (bits & 16) {
                    m.lda = (m.ta ? m.m : m.k) + 3;
                    m.ldb = (m.tb ? m.k : m.n) + 1;
                    m.ldc = m.n + 2;
                }
                product(&m, bits & 8 ? 1.0f : 0.0f);
                if (bits < 8) {
                    m.batch = 3;
                    product(&m, 0.0f);
                }
            }
}

/* fp32 inside, one rounding at the end: 65519 is 65504, 65520 overflows, 2^-24 is kept. */
void test_matmul_f16(void **state)
{
    struct ds_plans *plans = kernels_cpu.plans_create();
    struct ds_matmul m = {.m = 3, .n = 1, .k = 2, .batch = 1, .ab = DS_F16, .c = DS_F16};
    const _Float16 a[6] = {255, 239, 255, 240, 0x1p-12f, 0}, b[2] = {256, 1};
    const _Float16 small[2] = {0x1p-12f, 0};
    _Float16 c[3];
    char why[256] = "", *work;
    size_t bytes;
    const struct ds_plan *plan = kernels_cpu.matmul_plan(plans, &m, &bytes, why);

    assert_non_null(plan);
    work = malloc(bytes);
    assert_int_equal(kernels_cpu.matmul_run(plan, a, b, c, NULL, 0.0f, work, NULL), 0);
    assert_true((double)c[0] == 65504 && isinf((double)c[1]) && (double)c[2] == 0x1p-4);
    assert_int_equal(kernels_cpu.matmul_run(plan, a, small, c, NULL, 0.0f, work, NULL), 0);
    assert_true((double)c[2] == 0x1p-24);
    free(work);
    kernels_cpu.plans_destroy(plans);
}

void test_matmul_refusals(void **state)
{
    struct ds_plans *plans = kernels_cpu.plans_create();
    struct ds_matmul m = {.m = 2, .n = 2, .k = 2, .batch = 1, .ab = DS_F32, .c = DS_F32};
    const struct ds_plan *plan;
    float a[4] = {1, 2, 3, 4}, c[4];
    char why[256] = "", *work;
    size_t bytes;

    plan = kernels_cpu.matmul_plan(plans, &m, &bytes, why);
    assert_non_null(plan);
    work = malloc(bytes);
    assert_int_equal(kernels_cpu.matmul_run(plan, a, a, c, NULL, 0.0f, work, NULL), 0);
    assert_true(c[0] == 7 && c[1] == 10 && c[2] == 15 && c[3] == 22);
    assert_int_equal(kernels_cpu.matmul_run(plan, a, a, c, NULL, 1.0f, work, NULL), -1);
    m.c = DS_BF16;
    assert_null(kernels_cpu.matmul_plan(plans, &m, &bytes, why));
    m.c = DS_F32;
    m.k = 0;
    assert_null(kernels_cpu.matmul_plan(plans, &m, &bytes, why));
    assert_non_null(strstr(why, "at least 1"));
    free(work);
    kernels_cpu.plans_destroy(plans);
    kernels_cpu.plans_destroy(NULL);
}
