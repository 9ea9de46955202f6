/* The reference operators: gradients against central differences, random words against published
 * ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/ref/ref.h"

#define MAX 4096
#define STEP 1e-5

/* A case: y = f(in) where in[k] are its inputs; grad[k] the gradients of sum(weight * y) by the
 * reference. */
struct probe {
    int inputs;
    int64_t n[4], ny;
    double in[4][MAX], grad[4][MAX], y[MAX], weight[MAX];
    const struct ds_attention *attention;
    const struct ds_dropout *dropout;
    const int32_t *index, *pos;
    int64_t N, C, V;
    void (*forward)(struct probe *);
};

static double noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-52 - 1.0;
}

static double weighted(struct probe *p)
{
    double s = 0.0;

    p->forward(p);
    for (int64_t i = 0; i < p->ny; i++)
        s += p->weight[i] * p->y[i];
    return s;
}

static struct probe *new_probe(int inputs, const int64_t *n, int64_t ny,
                               void (*forward)(struct probe *))
{
    struct probe *p = calloc(1, sizeof *p);
    uint64_t state = 12345;

    assert_non_null(p);
    p->inputs = inputs;
    p->ny = ny;
    p->forward = forward;
    for (int k = 0; k < inputs; k++) {
        p->n[k] = n[k];
        for (int64_t i = 0; i < n[k]; i++)
            p->in[k][i] = 2.0 * noise(&state);
    }
    for (int64_t i = 0; i < ny; i++)
        p->weight[i] = noise(&state);
    return p;
}

static void compare(struct probe *p)
{
    for (int k = 0; k < p->inputs; k++)
        for (int64_t i = 0; i < p->n[k]; i++) {
            double x = p->in[k][i], up, down, slope;

            p->in[k][i] = x + STEP;
            up = weighted(p);
            p->in[k][i] = x - STEP;
            down = weighted(p);
            p->in[k][i] = x;
            slope = (up - down) / (2.0 * STEP);
            if (!(fabs(slope - p->grad[k][i]) <= 1e-7 * (1.0 + fabs(slope))))
                fail_msg("input %d element %lld: gradient %.10g, difference quotient %.10g", k,
                         (long long)i, p->grad[k][i], slope);
        }
    free(p);
}

static void embedding(struct probe *p)
{
    ref_embedding_fwd(p->y, p->in[0], p->in[1], p->index, p->pos, p->N, p->C);
}

static void test_embedding(void **state)
{
    static const int32_t token[6] = {4, 0, 4, 2, 4, 1}, pos[6] = {0, 1, 2, 0, 1, 2};
    struct probe *p = new_probe(2, (const int64_t[]){5 * 3, 4 * 3}, 6 * 3, embedding);

    p->index = token;
    p->pos = pos;
    p->N = 6;
    p->C = 3;
    ref_embedding_bwd(p->grad[0], 0.0, p->grad[1], 0.0, p->weight, token, pos, 6, 3, 5, 4);
    compare(p);
}

static void layernorm(struct probe *p)
{
    double mean[8], rstd[8];

    ref_layernorm_fwd(p->y, mean, rstd, p->in[0], p->in[1], p->in[2], p->N, p->C, 1e-5);
}

static void test_layernorm(void **state)
{
    struct probe *p = new_probe(3, (const int64_t[]){5 * 7, 7, 7}, 5 * 7, layernorm);
    double mean[8], rstd[8];

    p->N = 5;
    p->C = 7;
    ref_layernorm_fwd(p->y, mean, rstd, p->in[0], p->in[1], p->in[2], 5, 7, 1e-5);
    ref_layernorm_bwd(p->grad[0], 0, p->grad[1], p->grad[2], 0.0, p->weight, p->in[0], mean, rstd,
                      p->in[1], 5, 7);
    compare(p);
}

static void rmsnorm(struct probe *p)
{
    double rstd[8];

    ref_rmsnorm_fwd(p->y, rstd, p->in[0], p->in[1], p->N, p->C, 1e-5);
}

static void test_rmsnorm(void **state)
{
    struct probe *p = new_probe(2, (const int64_t[]){5 * 7, 7}, 5 * 7, rmsnorm);
    double rstd[8];

    p->N = 5;
    p->C = 7;
    ref_rmsnorm_fwd(p->y, rstd, p->in[0], p->in[1], 5, 7, 1e-5);
    ref_rmsnorm_bwd(p->grad[0], 0, p->grad[1], 0.0, p->weight, p->in[0], rstd, p->in[1], 5, 7);
    compare(p);
}

static void gelu(struct probe *p)
{
    ref_gelu_fwd(p->y, p->in[0], p->n[0]);
}

static void test_gelu(void **state)
{
    struct probe *p = new_probe(1, (const int64_t[]){50}, 50, gelu);

    ref_gelu_bwd(p->grad[0], p->weight, p->in[0], 50);
    compare(p);
}

static void swiglu(struct probe *p)
{
    ref_swiglu_fwd(p->y, p->in[0], p->N, p->C);
}

static void test_swiglu(void **state)
{
    struct probe *p = new_probe(1, (const int64_t[]){3 * 2 * 9}, 3 * 9, swiglu);

    p->N = 3;
    p->C = 9;
    ref_swiglu_bwd(p->grad[0], p->weight, p->in[0], 3, 9);
    compare(p);
}

static void bias(struct probe *p)
{
    for (int64_t n = 0; n < p->N; n++)
        memcpy(p->y + n * p->C, p->in[0], (size_t)p->C * sizeof(double));
}

static void test_bias(void **state)
{
    struct probe *p = new_probe(1, (const int64_t[]){6}, 4 * 6, bias);

    p->N = 4;
    p->C = 6;
    ref_bias_bwd(p->grad[0], 0.0, p->weight, 4, 6);
    compare(p);
}

static void dropout(struct probe *p)
{
    ref_dropout_add_fwd(p->y, p->in[0], p->in[1], 2, 5, 3, p->dropout);
}

static void test_dropout(void **state)
{
    static const uint64_t sample[2] = {7, 1ull << 40};
    const struct ds_dropout d = {0.4f, 99, 5, sample};
    struct probe *p = new_probe(2, (const int64_t[]){30, 30}, 30, dropout);

    p->dropout = &d;
    ref_dropout_bwd(p->grad[0], p->weight, 2, 5, 3, &d);
    memcpy(p->grad[1], p->weight, sizeof p->weight);
    compare(p);
}

static const int32_t rope_pos[4] = {0, 1, 5, 1000};

static void rope(struct probe *p)
{
    memcpy(p->y, p->in[0], (size_t)p->ny * sizeof(double));
    ref_rope(p->y, rope_pos, 4, 3, 1, 6, 10000.0, 0);
}

static void test_rope(void **state)
{
    struct probe *p = new_probe(1, (const int64_t[]){4 * 5 * 6}, 4 * 5 * 6, rope);

    memcpy(p->grad[0], p->weight, sizeof p->weight);
    ref_rope(p->grad[0], rope_pos, 4, 3, 1, 6, 10000.0, 1);
    compare(p);
}

static void attention(struct probe *p)
{
    double lse[256];

    ref_attention_fwd(p->y, lse, p->in[0], p->attention);
}

static void attention_case(int64_t G, const int32_t *doc, float drop)
{
    static const uint64_t sample[2] = {3, 4};
    const struct ds_attention a = {.B = 2,
                                   .T = 5,
                                   .H = 4,
                                   .G = G,
                                   .D = 3,
                                   .scale = 0.6f,
                                   .doc = doc,
                                   .dropout = {drop, 11, 12, sample}};
    struct probe *p =
        new_probe(1, (const int64_t[]){2 * 5 * (4 + 2 * G) * 3}, 2 * 5 * 4 * 3, attention);

    p->attention = &a;
    ref_attention_bwd(p->grad[0], p->weight, p->in[0], &a);
    compare(p);
}

static void test_attention(void **state)
{
    static const int32_t doc[10] = {0, 0, 2, 2, 4, 0, 1, 1, 1, 1};

    attention_case(4, NULL, 0.0f);
    attention_case(2, doc, 0.0f);
    attention_case(1, NULL, 0.3f);
    attention_case(2, doc, 0.3f);
}

static const int32_t loss_target[4] = {2, -1, 0, 5};

static void cross_entropy(struct probe *p)
{
    double loss[2] = {0.0, 0.0};

    ref_cross_entropy(loss, NULL, NULL, p->in[0], loss_target, 4, 6, 8, 1.0);
    p->y[0] = loss[0];
}

static void test_cross_entropy(void **state)
{
    struct probe *p = new_probe(1, (const int64_t[]){4 * 8}, 1, cross_entropy);
    double loss[2] = {0.0, 0.0};

    ref_cross_entropy(loss, NULL, p->grad[0], p->in[0], loss_target, 4, 6, 8, p->weight[0]);
    assert_true(loss[1] == 3.0);
    compare(p);
}

/* Worked by hand: w 1, g 2, first update, lr 0.1, eps 0: m = 0.2, v = 0.004, both corrected to g
 * and g^2, so the step is lr * sign(g). With decay 0.5: w = 1 - 0.05 - 0.1. */
static void test_adamw(void **state)
{
    double w = 1.0, m = 0.0, v = 0.0, g = 4.0;
    const struct ds_scalars s = {.update = 1, .lr = 0.125f, .grad_scale = 0.5f};

    ref_adamw(&w, &m, &v, &g, 1, &(struct ref_hyper){0.125, 0.9, 0.999, 0.0, 0.5, 1}, &s);
    assert_true(fabs(w - (1.0 - 0.0625 - 0.125)) < 1e-12);
    assert_true(fabs(m - 0.2) < 1e-12 && fabs(v - 0.004) < 1e-12);
}

/* Three steps on three weights, as PyTorch 2.15's torch.optim takes them in float64: lr 0.125, decay 0.0625. */
typedef void ref_step(double *w, double *m, double *v, const double *g, const struct ref_hyper *h,
                      const struct ds_scalars *s);

static void step_adamw(double *w, double *m, double *v, const double *g, const struct ref_hyper *h,
                       const struct ds_scalars *s)
{
    ref_adamw(w, m, v, g, 3, h, s);
}

static void step_adagrad(double *w, double *m, double *v, const double *g, const struct ref_hyper *h,
                         const struct ds_scalars *s)
{
    (void)m;
    ref_adagrad(w, v, g, 3, h, s);
}

static void step_sgd(double *w, double *m, double *v, const double *g, const struct ref_hyper *h,
                     const struct ds_scalars *s)
{
    (void)v;
    ref_sgd(w, h->beta1 > 0 ? m : NULL, g, 3, h, s);
}

static void test_optimizers(void **state)
{
    static const double g[3][3] = {{0.5, -0.25, 1.0}, {-0.75, 0.5, 0.125}, {0.25, 0.25, -0.5}};
    static const struct {
        ref_step *step;
        struct ref_hyper h;
        double want[3];
    } t[] = {
        {step_adagrad, {0.125, 0, 0, 1e-10, 0.0625, 0},
         {0.9311533712239275, -0.52880102483512337, 0.16302169387277915}},
        {step_sgd, {0.125, 0, 0, 0, 0.0625, 0}, {0.97698545455932617, -0.55087065696716309, 0.1681288480758667}},
        {step_sgd, {0.125, 0.5, 0, 0, 0.0625, 0},
         {0.96776914596557617, -0.55407500267028809, 0.065116763114929199}},
        {step_sgd, {0.125, 0.5, 0, 0, 0.0625, 1},
         {0.96131974458694458, -0.57804146409034729, 0.077511385083198547}},
        {step_adamw, {0.125, 0.5, 0.75, 1e-8, 0.0625, 0},
         {0.91500145837485447, -0.52665271300908689, 0.066557344989636544}},
        {step_adamw, {0.125, 0.5, 0.75, 1e-8, 0.0625, 1},
         {0.91684026909934324, -0.52958911994258318, 0.065437642202300944}},
    };

    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        double w[3] = {1.0, -0.5, 0.25}, m[3] = {0}, v[3] = {0};

        for (int k = 0; k < 3; k++)
            t[i].step(w, m, v, g[k], &t[i].h, &(struct ds_scalars){.update = k + 1, .grad_scale = 1.0f});
        for (int j = 0; j < 3; j++)
            assert_true(fabs(w[j] - t[i].want[j]) < 1e-13);
    }
}

/* Worked by hand: c = 0.9 0.5 - 0.1 = 0.35, so w = 1 - 0.125 (1 + 0.5); m = 0.99 0.5 - 0.01. */
static void test_lion(void **state)
{
    double w = 1.0, m = 0.5, g = -2.0;

    ref_lion(&w, &m, &g, 1, &(struct ref_hyper){0.125, 0.9, 0.99, 0, 0.5, 0},
             &(struct ds_scalars){.update = 1, .grad_scale = 0.5f});
    assert_true(fabs(w - 0.8125) < 1e-12 && fabs(m - 0.485) < 1e-12);
}

/* Worked by hand: at the first update u = sign(g), |u| = sqrt 2, |w| = 5. */
static void test_lamb(void **state)
{
    const double g[2] = {3.0, -0.1};
    const double ratio[2][2] = {{10, 5 / sqrt(2)}, {2, 2}};

    for (int i = 0; i < 2; i++) {
        double w[2] = {3, 4}, m[2] = {0}, v[2] = {0};

        ref_lamb(w, m, v, g, 2, &(struct ref_hyper){0.125, 0.9, 0.999, 0, 0, 1}, 0.01, ratio[i][0],
                 &(struct ds_scalars){.update = 1, .grad_scale = 1.0f});
        assert_true(fabs(w[0] - (3 - 0.125 * ratio[i][1])) < 1e-12);
        assert_true(fabs(w[1] - (4 + 0.125 * ratio[i][1])) < 1e-12);
    }
}

/* The known answers of the authors' Random123 for philox4x32-10. */
static void test_philox(void **state)
{
    static const uint32_t want[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                        {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};

    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(ref_random_word(0, 0, 0, i), want[0][i]);
        assert_int_equal(ref_random_word(~0ull, ~0ull, ~0u, 4 * 0xffffffffull + i), want[1][i]);
        assert_int_equal(ref_random_word(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x13198a2e,
                                         4 * 0x03707344ull + i),
                         want[2][i]);
    }
}

static void test_stored(void **state)
{
    assert_true(ref_stored(1.0 + 0x1p-8, DS_BF16) == 1.0); /* halfway: to even */
    assert_true(ref_stored(1.0 + 0x3p-8, DS_BF16) == 1.0 + 0x1p-6);
    assert_true(ref_stored(65519.0, DS_F16) == 65504.0 && isinf(ref_stored(65520.0, DS_F16)));
    assert_true(ref_stored(0x1p-24, DS_F16) == 0x1p-24 && ref_stored(0x1p-25, DS_F16) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding), cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_rmsnorm),   cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_swiglu),    cmocka_unit_test(test_bias),
        cmocka_unit_test(test_dropout),   cmocka_unit_test(test_rope),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_adamw),     cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_lion),      cmocka_unit_test(test_lamb),
        cmocka_unit_test(test_philox),    cmocka_unit_test(test_stored),
    };

    return cmocka_run_group_tests_name("kernels/ref", tests, NULL, NULL);
}
