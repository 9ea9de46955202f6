/* Operators on flat shards: optimizers, sum of squares, conversions, reductions; and that the thread
 * count changes no bit where kernels.h promises that. */
#include <omp.h>

#include "tests/kernels/cpu.h"

/* One optimizer against its reference over 50 steps, from one generation of arrays into another and back. */
struct optimizer {
    const char *name;
    void (*step)(const struct ds_update *, const struct ds_scalars *s);
    void (*ref)(double *w, double *m, double *v, const double *g, int64_t n, const struct ref_hyper *,
                const struct ds_scalars *);
    int has_m, has_v;
    struct ref_hyper h;
};

#define MIN_RATIO 0.01
#define MAX_RATIO 0.5

static void step_lamb(const struct ds_update *u, const struct ds_scalars *s)
{
    struct ds_update second = *u;
    double sum[2] = {0};

    kernels_cpu.lamb_norms(sum, u, s, NULL);
    second.m = u->m2;
    second.v = u->v2;
    kernels_cpu.lamb(&second, (float)fmin(MAX_RATIO, fmax(MIN_RATIO, sqrt(sum[0] / sum[1]))), s, NULL);
}

static void step_adamw(const struct ds_update *u, const struct ds_scalars *s)
{
    kernels_cpu.adamw(u, s, NULL);
}

static void step_lion(const struct ds_update *u, const struct ds_scalars *s)
{
    kernels_cpu.lion(u, s, NULL);
}

static void step_adagrad(const struct ds_update *u, const struct ds_scalars *s)
{
    kernels_cpu.adagrad(u, s, NULL);
}

static void step_sgd(const struct ds_update *u, const struct ds_scalars *s)
{
    kernels_cpu.sgd(u, s, NULL);
}

static void lion(double *w, double *m, double *v, const double *g, int64_t n, const struct ref_hyper *h,
                 const struct ds_scalars *s)
{
    (void)v;
    ref_lion(w, m, g, n, h, s);
}

static void adagrad(double *w, double *m, double *v, const double *g, int64_t n, const struct ref_hyper *h,
                    const struct ds_scalars *s)
{
    (void)m;
    ref_adagrad(w, v, g, n, h, s);
}

static void sgd(double *w, double *m, double *v, const double *g, int64_t n, const struct ref_hyper *h,
                const struct ds_scalars *s)
{
    (void)v;
    ref_sgd(w, h->beta1 > 0 ? m : NULL, g, n, h, s);
}

static void lamb(double *w, double *m, double *v, const double *g, int64_t n, const struct ref_hyper *h,
                 const struct ds_scalars *s)
{
    ref_lamb(w, m, v, g, n, h, MIN_RATIO, MAX_RATIO, s);
}

#define LR (1e-2f * 0.5f)
static const struct optimizer optimizers[] = {
    {"adamw", step_adamw, ref_adamw, 1, 1, {LR, 0.9f, 0.95f, 1e-8f, 0.1f, 1}},
    {"adam", step_adamw, ref_adamw, 1, 1, {LR, 0.9f, 0.95f, 1e-8f, 0.1f, 0}},
    {"lion", step_lion, lion, 1, 0, {LR, 0.9f, 0.99f, 0, 0.1f, 0}},
    {"adagrad", step_adagrad, adagrad, 0, 1, {LR, 0, 0, 1e-6f, 0.1f, 0}},
    {"sgd", step_sgd, sgd, 0, 0, {LR, 0, 0, 0, 0.1f, 0}},
    {"sgd with momentum", step_sgd, sgd, 1, 0, {LR, 0.9f, 0, 0, 0.1f, 0}},
    {"sgd of Nesterov", step_sgd, sgd, 1, 0, {LR, 0.9f, 0, 0, 0.1f, 1}},
    {"lamb", step_lamb, lamb, 1, 1, {LR, 0.9f, 0.95f, 1e-6f, 0.1f, 1}},
};

static void optimize(const struct optimizer *o, int64_t n, enum ds_dtype dt, int skip)
{
    struct pool p = {.random = 15};
    struct array *w = random_array(&p, n, DS_F32, 1.0), *m = random_array(&p, n, DS_F32, 0.0);
    struct array *v = random_array(&p, n, DS_F32, 0.0);
    struct array *w2 = output_array(&p, n, DS_F32), *m2 = output_array(&p, n, DS_F32);
    struct array *v2 = output_array(&p, n, DS_F32), *out = output_array(&p, n, dt);

    for (int k = 0; k < 50; k++) {
        struct array *g = random_array(&p, n, DS_F32, 0.5);
        struct ds_scalars s = {.update = k + 1, .lr = 1e-2f, .grad_scale = 0.25f, .skip = skip,
                               .beta1 = (float)o->h.beta1};
        struct array *from[3] = {k % 2 ? w2 : w, k % 2 ? m2 : m, k % 2 ? v2 : v};
        struct array *to[3] = {k % 2 ? w : w2, k % 2 ? m : m2, k % 2 ? v : v2};
        struct ds_update u = {
            .w2 = to[0]->stored, .w = from[0]->stored, .m2 = o->has_m ? to[1]->stored : NULL,
            .m = o->has_m ? from[1]->stored : NULL, .v2 = o->has_v ? to[2]->stored : NULL,
            .v = o->has_v ? from[2]->stored : NULL, .g = g->stored, .out = out->stored, .dt = dt, .n = n,
            .lr_mul = 0.5f, .beta2 = (float)o->h.beta2, .eps = (float)o->h.eps, .decay = (float)o->h.decay,
            .variant = o->h.variant};

        o->ref(w->want, m->want, v->want, g->want, n, &o->h, &s);
        o->step(&u, &s);
        free(g->want);
        g->want = NULL;
    }
    array_check(w, 2e-5, o->name);
    if (o->has_m)
        array_check(m, 2e-5, o->name);
    if (o->has_v)
        array_check(v, 2e-5, o->name);
    memcpy(out->want, w->want, (size_t)n * sizeof(double));
    array_check(out, dt == DS_BF16 ? TOL(DS_BF16) : 2e-5, o->name);
    pool_end(&p);
}

void test_optimizers(void **state)
{
    static const int64_t lengths[] = {1,   15,   16,   17,
                                      257, 4096, 20003}; /* 16, 4096: aligned, so streamed */

    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (int bf = 0; bf < 2; bf++)
                optimize(&optimizers[i], lengths[l], bf ? DS_BF16 : DS_F32, 0);
        optimize(&optimizers[i], 100, DS_BF16, 1);
    }
}

void test_sumsq(void **state)
{
    static const int64_t lengths[] = {0, 1, 31, 4096, 4097, 3000001};

    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        struct pool p = {.random = 16};
        struct array *g = random_array(&p, lengths[l], DS_F32, 1.0);
        double sum = NAN, want = ref_sumsq(g->want, lengths[l]);
        int32_t bad = 0;

        kernels_cpu.sumsq(&sum, &bad, g->stored, lengths[l], NULL);
        assert_true(fabs(sum - want) <= 1e-12 * want && bad == 0);
        if (lengths[l]) {
            ((float *)g->stored)[lengths[l] / 2] = l % 2 ? NAN : -INFINITY;
            kernels_cpu.sumsq(&sum, &bad, g->stored, lengths[l], NULL);
            assert_int_equal(bad, 1);
            ((float *)g->stored)[lengths[l] / 2] = 3e38f; /* its square is no float */
            bad = 0;
            kernels_cpu.sumsq(&sum, &bad, g->stored, lengths[l], NULL);
            assert_int_equal(bad, 0);
        }
        pool_end(&p);
    }
}

/* Every pair of float types: exactly the value rounded once. */
void test_cast(void **state)
{
    static const enum ds_dtype types[] = {DS_F32, DS_BF16, DS_F16, DS_F64};

    for (int k = 0; k < 32; k++) {
        enum ds_dtype tx = types[k % 4], ty = types[k / 4 % 4];
        int64_t n = k < 16 ? 77 : 10001;
        struct pool p = {.random = (uint64_t)k};
        struct array *x = random_array(&p, n, tx, 300.0), *y = output_array(&p, n, ty);

        for (int64_t i = 0; i < n; i++)
            y->want[i] = ref_stored(x->want[i], ty);
        kernels_cpu.cast(y->stored, ty, x->stored, tx, n, NULL);
        array_check(y, 0.0, "cast");
        pool_end(&p);
    }
    float special[3] = {NAN, INFINITY, 3.4e38f}, back[3];
    uint16_t half[3];

    kernels_cpu.cast(half, DS_BF16, special, DS_F32, 3, NULL);
    kernels_cpu.cast(back, DS_F32, half, DS_BF16, 3, NULL);
    assert_true(isnan(back[0]) && isinf(back[1]) && isinf(back[2]));
}

void test_reduce(void **state)
{
    for (int k = 0; k < 36; k++) {
        static const enum ds_dtype types[] = {DS_F32, DS_BF16, DS_F64};
        static const int64_t lengths[] = {1, 33, 10007};
        enum ds_dtype dt = types[k % 3];
        int64_t n = lengths[k / 3 % 3];
        int op = k / 9 % 2, in_place = k / 18;
        struct pool p = {.random = 17};
        struct array *s[4], *y = output_array(&p, n, dt);
        const void *stored[4];
        const double *want[4];

        for (int j = 0; j < 4; j++) {
            s[j] = random_array(&p, n, dt, 1.0);
            stored[j] = s[j]->stored;
            want[j] = s[j]->want;
        }
        ref_reduce(y->want, want, 4, n, op);
        if (in_place) {
            memcpy(s[2]->want, y->want, (size_t)n * sizeof(double));
            y = s[2];
        }
        kernels_cpu.reduce(y->stored, stored, 4, n, op, dt, NULL);
        array_check(y, op ? 0.0 : TOL(dt), "reduce");
        pool_end(&p);
    }
}

/* --- thread counts --- */

struct run {
    float loss_grad[40 * 301], dw[200], db[200], bias[200], table[64 * 200], dqkv[2 * 90 * 4 * 32];
    float dx[90 * 200];
    double loss[2], sum;
};

static void run_all(struct run *r, int threads)
{
    const struct ds_attention a = {.B = 2, .T = 90, .H = 2, .G = 1, .D = 32, .scale = 0.2f};
    struct pool p = {.random = 18};
    struct array *x = random_array(&p, 90 * 200, DS_F32, 1.0),
                 *dy = random_array(&p, 90 * 200, DS_F32, 1.0);
    struct array *w = random_array(&p, 200, DS_F32, 1.0), *mean = random_array(&p, 90, DS_F32, 0.1);
    struct array *rstd = random_array(&p, 90, DS_F32, 1.0),
                 *logits = random_array(&p, 40 * 301, DS_F32, 1.0);
    struct array *qkv = random_array(&p, 2 * 90 * 4 * 32, DS_F32, 1.0);
    struct array *out = output_array(&p, 2 * 90 * 64, DS_F32),
                 *lse = output_array(&p, 4 * 90, DS_F32);
    int32_t *token = random_ints(&p, 90, 64), *target = random_ints(&p, 40, 301), bad = 0;
    const struct kernels *k = &kernels_cpu;
    void *work;

    omp_set_num_threads(threads);
    work = scratch(&p, k->attention_work(&a, DS_F32) + k->norm_bwd_work(90, 200) + 4096);
    k->layernorm_bwd(r->dx, 0, r->dw, r->db, 0.0f, dy->stored, x->stored, mean->stored,
                     rstd->stored, w->stored, 90, 200, DS_F32, work, NULL);
    k->bias_bwd(r->bias, 0.0f, dy->stored, 90, 200, DS_F32, work, NULL);
    k->embedding_bwd(r->table, 0.0f, NULL, 0.0f, dy->stored, token, NULL, 90, 200, 64, 0, DS_F32,
                     work, NULL);
    k->cross_entropy(r->loss, NULL, r->loss_grad, logits->stored, target, 40, 301, 301, 1.0f,
                     DS_F32, NULL);
    k->sumsq(&r->sum, &bad, x->stored, 90 * 200, NULL);
    k->attention_fwd(out->stored, lse->stored, qkv->stored, &a, DS_F32, work, NULL);
    k->attention_bwd(r->dqkv, out->stored, qkv->stored, out->stored, lse->stored, &a, DS_F32, work,
                     NULL);
    pool_end(&p);
}

void test_threads(void **state)
{
#if defined __SANITIZE_THREAD__
    const int most = 1; /* libgomp's barriers are invisible to it */
#else
    const int most = 5;
#endif
    int before = omp_get_max_threads();
    struct run *one = calloc(1, sizeof *one), *many = calloc(1, sizeof *many);

    run_all(one, 1);
    for (int threads = 2; threads <= most; threads++) {
        memset(many, 0, sizeof *many);
        run_all(many, threads);
        assert_memory_equal(one, many, sizeof *one);
    }
    omp_set_num_threads(before);
    free(one);
    free(many);
}
