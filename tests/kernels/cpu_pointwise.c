/* Pointwise operators, dropout, rotary embedding. */
#include "tests/kernels/cpu.h"

static const int64_t lengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 1000, 20011};
#define LENGTHS (sizeof lengths / sizeof *lengths)

void test_gelu(void **state)
{
    for (size_t k = 0; k < TYPES * LENGTHS; k++) {
        enum ds_dtype dt = type(k);
        int64_t n = lengths[k / TYPES];
        struct pool p = {.random = 7};
        struct array *x = random_array(&p, n, dt, 3.0), *y = output_array(&p, n, dt);
        struct array *dy = random_array(&p, n, dt, 1.0), *dx = output_array(&p, n, dt);

        ref_gelu_fwd(y->want, x->want, n);
        kernels_cpu.gelu_fwd(y->stored, x->stored, n, dt, NULL);
        array_check(y, TOL(dt), "gelu_fwd");
        ref_gelu_bwd(dx->want, dy->want, x->want, n);
        kernels_cpu.gelu_bwd(dx->stored, dy->stored, x->stored, n, dt, NULL);
        array_check(dx, TOL(dt), "gelu_bwd");
        memcpy(dy->want, dx->want, (size_t)n * sizeof(double));
        kernels_cpu.gelu_bwd(dy->stored, dy->stored, x->stored, n, dt, NULL);
        array_check(dy, TOL(dt), "gelu_bwd in place");
        pool_end(&p);
    }
}

void test_swiglu(void **state)
{
    for (size_t k = 0; k < TYPES * LENGTHS; k++) {
        enum ds_dtype dt = type(k);
        int64_t F = lengths[k / TYPES], N = 3;
        struct pool p = {.random = 8};
        struct array *gu = random_array(&p, N * 2 * F, dt, 2.0), *y = output_array(&p, N * F, dt);
        struct array *dy = random_array(&p, N * F, dt, 1.0), *d = output_array(&p, N * 2 * F, dt);

        ref_swiglu_fwd(y->want, gu->want, N, F);
        kernels_cpu.swiglu_fwd(y->stored, gu->stored, N, F, dt, NULL);
        array_check(y, TOL(dt), "swiglu_fwd");
        ref_swiglu_bwd(d->want, dy->want, gu->want, N, F);
        kernels_cpu.swiglu_bwd(d->stored, dy->stored, gu->stored, N, F, dt, NULL);
        array_check(d, TOL(dt), "swiglu_bwd");
        pool_end(&p);
    }
}

void test_add(void **state)
{
    for (size_t k = 0; k < TYPES * LENGTHS; k++) {
        enum ds_dtype dt = type(k);
        int64_t n = lengths[k / TYPES];
        struct pool p = {.random = 9};
        struct array *a = random_array(&p, n, dt, 1.0), *b = random_array(&p, n, dt, 1.0);
        struct array *y = output_array(&p, n, dt);

        ref_add(y->want, a->want, b->want, n);
        kernels_cpu.add(y->stored, a->stored, b->stored, n, dt, NULL);
        array_check(y, TOL(dt), "add");
        pool_end(&p);
    }
}

void test_rope(void **state)
{
    static const int64_t widths[] = {2, 6, 64, 128, 200};

    for (size_t k = 0; k < 10 * TYPES; k++) {
        enum ds_dtype dt = type(k);
        int64_t D = widths[k / TYPES / 2], N = 50, H = 4, G = 2;
        int inverse = k / TYPES % 2;
        struct pool p = {.random = 10};
        struct array *x = random_array(&p, N * (H + 2 * G) * D, dt, 1.0);
        int32_t *pos = random_ints(&p, N, 5000);

        ref_rope(x->want, pos, N, H, G, D, 10000.0, inverse);
        kernels_cpu.rope(x->stored, pos, N, H, G, D, 10000.0f, inverse, dt, NULL);
        array_check(x, TOL(dt), "rope");
        pool_end(&p);
    }
}

static void dropout(int64_t T, int64_t C, enum ds_dtype dt, float rate, int residual)
{
    static const uint64_t sample[3] = {5, 1ull << 33, 0xfffffffffffull};
    const struct ds_dropout d = {rate, 0xdeadbeef, 0x123456789abcdef, sample};
    struct pool p = {.random = 11};
    int64_t B = 3, n = B * T * C;
    struct array *x = random_array(&p, n, dt, 1.0), *res = random_array(&p, n, dt, 1.0);
    struct array *y = output_array(&p, n, dt), *dx = output_array(&p, n, dt);

    ref_dropout_add_fwd(y->want, x->want, residual ? res->want : NULL, B, T, C, &d);
    kernels_cpu.dropout_add_fwd(y->stored, x->stored, residual ? res->stored : NULL, B, T, C, &d,
                                dt, NULL);
    array_check(y, TOL(dt), "dropout_add_fwd");
    ref_dropout_bwd(dx->want, x->want, B, T, C, &d);
    kernels_cpu.dropout_bwd(dx->stored, x->stored, B, T, C, &d, dt, NULL);
    array_check(dx, TOL(dt), "dropout_bwd");
    if (!residual) /* forward and backward draw the same mask to the bit */
        assert_memory_equal(dx->stored, y->stored, (size_t)n * ds_dtype_bytes(dt));
    pool_end(&p);
}

void test_dropout(void **state)
{
    static const float rates[] = {0.0f, 0.1f, 0.5f, 0.999f};

    for (size_t k = 0; k < 8 * TYPES; k++)
        for (size_t l = 0; l < LENGTHS - 1; l++)
            dropout(l % 3 + 1, lengths[l], type(k), rates[k / TYPES / 2], k / TYPES % 2);
}

/* Of a million elements at p = 0.1 the share kept is 0.9 within five standard deviations, and masks
 * of other sites and samples are others. */
void test_dropout_share(void **state)
{
    enum { N = 1 << 20 };
    uint64_t sample = 42;
    struct ds_dropout d = {0.1f, 1, 2, &sample};
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y), *z = malloc(N * sizeof *z);
    int64_t kept = 0, both = 0;

    for (int64_t i = 0; i < N; i++)
        x[i] = 1.0f;
    kernels_cpu.dropout_add_fwd(y, x, NULL, 1, 1, N, &d, DS_F32, NULL);
    d.site = 2;
    kernels_cpu.dropout_add_fwd(z, x, NULL, 1, 1, N, &d, DS_F32, NULL);
    for (int64_t i = 0; i < N; i++) {
        kept += y[i] != 0.0f;
        both += y[i] != 0.0f && z[i] != 0.0f;
    }
    assert_true(fabs((double)kept / N - 0.9) < 5.0 * sqrt(0.09 / N));
    assert_true(fabs((double)both / N - 0.81) < 5.0 * sqrt(0.81 * 0.19 / N));
    free(x);
    free(y);
    free(z);
}
