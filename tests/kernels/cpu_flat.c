/* Operators on flat shards: optimizers, sum of squares, conversions, reductions; and that the thread
 * count changes no bit where kernels.h promises that. */
#include <omp.h>

#include "tests/kernels/cpu.h"

/* One optimizer against its reference over 50 steps, from one generation of arrays into another and back,
 * or in place as the engine does. */
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

static void optimize(const struct optimizer *o, int64_t n, enum ds_dtype dt, int skip, int in_place)
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
        int back = k % 2 || in_place, there = k % 2 && !in_place;
        struct array *from[3] = {there ? w2 : w, there ? m2 : m, there ? v2 : v};
        struct array *to[3] = {back ? w : w2, back ? m : m2, back ? v : v2};
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
    array_check(out, dt == DS_F32 ? 2e-5 : TOL(dt), o->name);
    pool_end(&p);
}

void test_optimizers(void **state)
{
    static const int64_t lengths[] = {1,   15,   16,   17,
                                      257, 4096, 20003}; /* 16, 4096: aligned, so streamed */

    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (size_t k = 0; k < TYPES; k++)
                for (int in_place = 0; in_place < 2; in_place++)
                    optimize(&optimizers[i], lengths[l], type(k), 0, in_place);
        for (int in_place = 0; in_place < 2; in_place++) {
            optimize(&optimizers[i], 100, DS_BF16, 1, in_place);
            optimize(&optimizers[i], 100, DS_F16, 1, in_place);
        }
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
    for (int k = 0; k < 48; k++) {
        static const enum ds_dtype types[] = {DS_F32, DS_BF16, DS_F16, DS_F64};
        static const int64_t lengths[] = {1, 33, 10007};
        enum ds_dtype dt = types[k % 4];
        int64_t n = lengths[k / 4 % 3];
        int op = k / 12 % 2, in_place = k / 24;
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

/* --- f16, under flush-to-zero as everything here --- */

enum { HALVES = 1 << 16, INF16 = 0x7c00 };

/* By its definition; NaN apart. The infinity counts as 2^16, the number that would follow the largest. */
static double half_value(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 0x3ff;
    double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);

    return h >> 15 ? -v : v;
}

static int is_nan16(uint16_t h)
{
    return (h & 0x7fff) > INF16;
}

/* Every f16 is the number that it stands for, and comes back from f32 as itself. */
static void every_half(void)
{
    uint16_t *h = malloc(HALVES * sizeof *h), *back = malloc(HALVES * sizeof *back);
    float *f = malloc(HALVES * sizeof *f);

    for (int i = 0; i < HALVES; i++)
        h[i] = (uint16_t)i;
    kernels_cpu.cast(f, DS_F32, h, DS_F16, HALVES, NULL);
    kernels_cpu.cast(back, DS_F16, f, DS_F32, HALVES, NULL);
    for (int i = 0; i < HALVES; i++) {
        int signs = !signbit(f[i]) == !(i >> 15);

        if (is_nan16(h[i]) ? !isnan(f[i]) || !is_nan16(back[i])
            : (i & 0x7fff) == INF16
                ? !isinf(f[i]) || !signs || back[i] != i
                : (double)f[i] != half_value(h[i]) || !signs || back[i] != i)
            fail_msg("%s: f16 %#06x became %a and then %#06x", kernels_cpu_isa(), (unsigned)i,
                     (double)f[i], (unsigned)back[i]);
    }
    free(h);
    free(back);
    free(f);
}

/* Halfway between neighbours the even one; one step of f32 to either side the nearer one. */
static void every_midpoint(void)
{
    int64_t n = 6 * INF16;
    float *f = malloc((size_t)n * sizeof *f);
    uint16_t *want = malloc((size_t)n * sizeof *want), *got = malloc((size_t)n * sizeof *got);

    for (int64_t i = 0; i < n; i++) {
        uint16_t below = (uint16_t)(i / 6), above = (uint16_t)(below + 1);
        int step = (int)(i % 3) - 1, minus = i / 3 % 2;
        float mid = (float)((half_value(below) + half_value(above)) / 2);
        uint32_t u;

        memcpy(&u, &mid, sizeof u);
        u = (u + (uint32_t)step) | (uint32_t)minus << 31;
        memcpy(&f[i], &u, sizeof u);
        want[i] = step < 0 ? below : step > 0 ? above : below % 2 ? above : below;
        want[i] = (uint16_t)(want[i] | minus << 15);
    }
    kernels_cpu.cast(got, DS_F16, f, DS_F32, n, NULL);
    for (int64_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("%s: %a became f16 %#06x, not %#06x", kernels_cpu_isa(), (double)f[i],
                     (unsigned)got[i], (unsigned)want[i]);
    free(f);
    free(want);
    free(got);
}

void test_f16(void **state)
{
    static const struct {
        uint32_t f;
        uint16_t h;
    } c[] = {
        {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x00000001, 0x0000}, {0x807fffff, 0x8000},
        {0x7f800000, 0x7c00}, {0xff800000, 0xfc00}, {0x7f7fffff, 0x7c00}, /* inf, the largest float */
        {0x477fefff, 0x7bff}, {0x477ff000, 0x7c00}, {0xc77ff000, 0xfc00}, /* 65520 and just below */
        {0x47800000, 0x7c00}, {0x33000000, 0x0000}, {0x33000001, 0x0001}, /* 2^16, 2^-25 */
    };
    static const uint32_t nan[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff801fff, 0x7fffffff};
    const uint16_t tiny[5] = {1, 2, 0x8003, 0x3ff, 0x3ff}, one[5] = {1, 1, 1, 1, 2};
    static const uint16_t sum[5] = {2, 3, 0x8002, 0x400, 0x401};
    const uint16_t big[1] = {0x6800}, unit[1] = {0x3c00}; /* 2048: its neighbour is 2050 */
    uint16_t y[5];

    every_half();
    every_midpoint();
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        kernels_cpu.cast(y, DS_F16, &c[i].f, DS_F32, 1, NULL);
        assert_int_equal(y[0], c[i].h);
    }
    kernels_cpu.cast(y, DS_F16, nan, DS_F32, 5, NULL);
    for (int i = 0; i < 5; i++)
        assert_true(is_nan16(y[i]));
    kernels_cpu.add(y, tiny, one, 5, DS_F16, NULL);
    assert_memory_equal(y, sum, sizeof sum);
    kernels_cpu.reduce(y, (const void *const[]){big, unit, unit, unit}, 4, 1, 0, DS_F16, NULL);
    assert_int_equal(y[0], 0x6802); /* 2051 rounded once; f16 sums would stay at 2048 */
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
