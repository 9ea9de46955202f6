/* What each operator costs in a training step of GPT-2 124M, as a share of its matrix products.
 *
 * usage: bench-kernels [SECONDS]     the least time spent on each measurement (0.3)
 *
 * Per batch shape and precision: the products of forward and backward in all their layouts through
 * oneDNN alone, then every other operator at its size times its number of calls. All in one run,
 * the fastest of several repetitions each, so the shares mean something on a noisy machine. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"

enum { LAYERS = 12, C = 768, H = 12, V = 50257, TMAX = 1024, PARAMETERS = 124439808 };

struct bench {
    const struct kernels *k;
    struct ds_plans *plans;
    enum ds_dtype dt;
    int64_t B, T, N;
    double least, products, others, sum;
    void *big, *a, *b, *c, *work; /* logits; three of 4 C per token and more; scratch */
    float *master, *m, *v, *g;    /* (PARAMETERS) */
    void *half, *w;               /* master in bf16, and whichever the products use */
    int32_t *token, *pos, *target;
    double loss[2];
    int32_t bad;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(omp_get_max_threads() > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double fastest(struct bench *b, void (*call)(struct bench *))
{
    double best = INFINITY, begin = now();
    int n = 0;

    call(b);
    do {
        double t = now();

        call(b);
        t = now() - t;
        best = t < best ? t : best;
    } while (++n < 3 || now() - begin < b->least);
    return best;
}

static void line(struct bench *b, const char *name, int calls, void (*call)(struct bench *))
{
    double s = fastest(b, call) * calls;

    b->others += s;
    printf("  %-22s %3d calls %9.2f ms  %6.2f %%\n", name, calls, s * 1e3, 100.0 * s / b->products);
}

/* --- products --- */

static double product(struct bench *b, int64_t m, int64_t n, int64_t k, int ta, int tb,
                      enum ds_dtype c)
{
    struct ds_matmul want = {
        .m = m, .n = n, .k = k, .batch = 1, .ta = ta, .tb = tb, .ab = b->dt, .c = c};
    size_t bytes;
    char why[256];
    const struct ds_plan *p = b->k->matmul_plan(b->plans, &want, &bytes, why);
    double best = INFINITY, begin = now();
    const void *x = b->a, *y = b->b;
    void *z = b->c, *work;
    int reps = 0;

    if (!p) {
        fprintf(stderr, "bench-kernels: %s\n", why);
        exit(1);
    }
    if (m == V || k == V) /* the head's gradients read the logits */
        x = b->big;
    if (n == V)
        z = b->big;
    if (m == V || n == V || k == V)
        y = m != V ? b->w : b->b;
    if (c == DS_F32 && ta)
        z = b->g;
    work = malloc(bytes);
    b->k->matmul_run(p, x, y, z, NULL, 0.0f, work, NULL);
    do {
        double t = now();

        b->k->matmul_run(p, x, y, z, NULL, 0.0f, work, NULL);
        t = now() - t;
        best = t < best ? t : best;
    } while (++reps < 3 || now() - begin < b->least);
    free(work);
    return best;
}

/* Forward, input gradient and weight gradient of one linear layer. Weights of layers whose output
 * is cut are stored (out, in), the others (in, out). */
static double linear(struct bench *b, const char *name, int calls, int64_t in, int64_t out, int row)
{
    double y = product(b, b->N, out, in, 0, !row, b->dt);
    double dx = product(b, b->N, in, out, 0, row, b->dt);
    double dw =
        row ? product(b, in, out, b->N, 1, 0, DS_F32) : product(b, out, in, b->N, 1, 0, DS_F32);
    double flop = 2.0 * (double)b->N * (double)in * (double)out;

    printf("  %-22s %3d calls %9.2f ms    y %4.0f dx %4.0f dw %4.0f GFLOP/s\n", name, calls,
           (y + dx + dw) * calls * 1e3, flop / y * 1e-9, flop / dx * 1e-9, flop / dw * 1e-9);
    return (y + dx + dw) * calls;
}

/* --- operators --- */

static void embedding_fwd(struct bench *b)
{
    b->k->embedding_fwd(b->c, b->w, b->b, b->token, b->pos, b->N, C, b->dt, NULL);
}

static void embedding_bwd(struct bench *b)
{
    b->k->embedding_bwd(b->g, 1.0f, b->g + (int64_t)V * C, 0.0f, b->a, b->token, b->pos, b->N, C, V,
                        TMAX, b->dt, b->work, NULL);
}

static void layernorm_fwd(struct bench *b)
{
    b->k->layernorm_fwd(b->b, b->m, b->m + b->N, b->a, b->w, b->w, b->N, C, 1e-5f, b->dt, NULL);
}

static void layernorm_bwd(struct bench *b)
{
    b->k->layernorm_bwd(b->c, 1, b->g, b->g + C, 0.0f, b->b, b->a, b->m, b->m + b->N, b->w, b->N, C,
                        b->dt, b->work, NULL);
}

static void gelu_fwd(struct bench *b)
{
    b->k->gelu_fwd(b->b, b->a, b->N * 4 * C, b->dt, NULL);
}

static void gelu_bwd(struct bench *b)
{
    b->k->gelu_bwd(b->c, b->b, b->a, b->N * 4 * C, b->dt, NULL);
}

static void residual(struct bench *b)
{
    b->k->dropout_add_fwd(b->c, b->a, b->b, b->B, b->T, C, NULL, b->dt, NULL);
}

static void dropout(struct bench *b)
{
    static const uint64_t sample[4] = {1, 2, 3, 4};
    const struct ds_dropout d = {0.1f, 1, 2, sample};

    b->k->dropout_add_fwd(b->c, b->a, b->b, b->B, b->T, C, &d, b->dt, NULL);
}

static void bias_bwd(struct bench *b) /* qkv, proj, fc, fc2: 9 C columns */
{
    b->k->bias_bwd(b->g, 0.0f, b->a, b->N, 3 * C, b->dt, b->work, NULL);
    b->k->bias_bwd(b->g, 0.0f, b->a, b->N, C, b->dt, b->work, NULL);
    b->k->bias_bwd(b->g, 0.0f, b->a, b->N, 4 * C, b->dt, b->work, NULL);
    b->k->bias_bwd(b->g, 0.0f, b->a, b->N, C, b->dt, b->work, NULL);
}

static struct ds_attention shape(const struct bench *b)
{
    return (struct ds_attention){.B = b->B, .T = b->T, .H = H, .G = H, .D = C / H, .scale = 0.125f};
}

static void attention_fwd(struct bench *b)
{
    struct ds_attention a = shape(b);

    b->k->attention_fwd(b->b, b->m, b->a, &a, b->dt, b->work, NULL);
}

static void attention_bwd(struct bench *b)
{
    struct ds_attention a = shape(b);

    b->k->attention_bwd(b->c, b->b, b->a, b->b, b->m, &a, b->dt, b->work, NULL);
}

static void cross_entropy(struct bench *b)
{
    b->k->cross_entropy(b->loss, NULL, b->big, b->big, b->target, b->N, V, V, 1.0f, b->dt, NULL);
}

static void sumsq(struct bench *b)
{
    b->k->sumsq(&b->sum, &b->bad, b->g, PARAMETERS, NULL);
}

static void adamw(struct bench *b)
{
    const struct ds_scalars s = {.update = 10, .lr = 1e-6f, .grad_scale = 1.0f, .beta1 = 0.9f};
    const struct ds_update u = {.w2 = b->master, .m2 = b->m, .v2 = b->v, .w = b->master, .m = b->m, .v = b->v,
                                .g = b->g, .out = b->dt == DS_BF16 ? b->half : NULL, .dt = b->dt,
                                .n = PARAMETERS, .lr_mul = 1.0f, .beta2 = 0.95f, .eps = 1e-8f,
                                .decay = 0.1f, .variant = 1};

    b->k->adamw(&u, &s, NULL);
}

/* --- */

static void fill(struct bench *b, void *p, int64_t n)
{
    float *x = b->big;
    uint32_t r = 1;

    for (int64_t i = 0; i < n; i++) {
        r = r * 1664525 + 1013904223;
        x[i] = (float)(int32_t)r * 0x1p-31f;
    }
    if (p != b->big)
        b->k->cast(p, b->dt, b->big, DS_F32, n, NULL);
}

static void run(struct bench *b)
{
    struct ds_attention a = shape(b);
    size_t work = b->k->attention_work(&a, b->dt) + b->k->embedding_bwd_work(b->N, V, TMAX) +
                  b->k->norm_bwd_work(b->N, 4 * C);

    b->plans = b->k->plans_create();
    b->work = malloc(work);
    for (int i = 0; i < 3; i++)
        fill(b, i == 0 ? b->a : i == 1 ? b->b : b->c, b->N * 4 * C);
    b->w = b->dt == DS_BF16 ? b->half : b->master;
    if (b->dt == DS_BF16)
        fill(b, b->half, PARAMETERS / 2);
    memcpy((char *)b->half + PARAMETERS / 2 * 2, b->half, PARAMETERS / 2 * 2);
    fill(b, b->big, b->dt == DS_F32 ? b->N * V : b->N * V / 2);
    if (b->dt == DS_BF16)
        for (int64_t i = 0; i < b->N * V / 2;
             i++) /* both halves of each word a number in [-1, 1] */
            ((uint32_t *)b->big)[i] =
                ((uint32_t *)b->big)[i] >> 16 | (((uint32_t *)b->big)[i] & 0xffff0000);
    printf("\n%s, batch %d x %d, %d threads, %s\n", b->dt == DS_BF16 ? "bf16" : "fp32", (int)b->B,
           (int)b->T, omp_get_max_threads(), kernels_cpu_isa());
    b->others = 0.0;
    b->products = linear(b, "products qkv", LAYERS, C, 3 * C, 0);
    b->products += linear(b, "products proj", LAYERS, C, C, 1);
    b->products += linear(b, "products fc", LAYERS, C, 4 * C, 0);
    b->products += linear(b, "products fc2", LAYERS, 4 * C, C, 1);
    b->products += linear(b, "products head", 1, C, V, 0);
    printf("  %-22s %19.2f ms  100.00 %%\n", "products", b->products * 1e3);
    memset(b->m, 0, (size_t)PARAMETERS * sizeof(float));
    line(b, "embedding_fwd", 1, embedding_fwd);
    line(b, "embedding_bwd", 1, embedding_bwd);
    line(b, "layernorm_fwd", 2 * LAYERS + 1, layernorm_fwd);
    line(b, "layernorm_bwd", 2 * LAYERS + 1, layernorm_bwd);
    line(b, "gelu_fwd", LAYERS, gelu_fwd);
    line(b, "gelu_bwd", LAYERS, gelu_bwd);
    line(b, "residual", 2 * LAYERS, residual);
    line(b, "bias_bwd", LAYERS, bias_bwd);
    line(b, "attention_fwd", LAYERS, attention_fwd);
    line(b, "attention_bwd", LAYERS, attention_bwd);
    line(b, "cross_entropy", 1, cross_entropy);
    memset(b->m, 0, (size_t)PARAMETERS * sizeof(float));
    memset(b->v, 0, (size_t)PARAMETERS * sizeof(float));
    line(b, "sumsq", 1, sumsq);
    line(b, "adamw", 1, adamw);
    printf("  %-22s %19.2f ms  %6.2f %%   share of the ceiling %.3f\n", "all but products",
           b->others * 1e3, 100.0 * b->others / b->products,
           b->products / (b->products + b->others));
    line(b, "(dropout, if on)", 2 * LAYERS, dropout);
    free(b->work);
    b->k->plans_destroy(b->plans);
}

int main(int argc, char **argv)
{
    static const int64_t length[] = {64, 512};
    struct bench b = {.k = &kernels_cpu, .B = 4, .least = argc > 1 ? atof(argv[1]) : 0.3};
    size_t tokens = 4 * 512, activation = tokens * 4 * C * sizeof(float);
    size_t logits = tokens * V * sizeof(float), weights = (size_t)PARAMETERS * sizeof(float);

    kernels_cpu_thread_init();
    b.big = malloc(logits > weights ? logits : weights);
    b.a = malloc(activation);
    b.b = malloc(activation);
    b.c = malloc(activation);
    b.master = malloc(weights);
    b.m = malloc(weights);
    b.v = malloc(weights);
    b.half = malloc(weights / 2);
    b.g = malloc(weights);
    b.token = malloc(tokens * sizeof(int32_t));
    b.pos = malloc(tokens * sizeof(int32_t));
    b.target = malloc(tokens * sizeof(int32_t));
    if (!b.big || !b.a || !b.b || !b.c || !b.master || !b.m || !b.v || !b.half || !b.g ||
        !b.token || !b.pos || !b.target) {
        fprintf(stderr, "bench-kernels: needs 2.7 GB of memory\n");
        return 1;
    }
    memset(b.v, 0, weights);
    memset(b.g, 0, weights);
    b.dt = DS_F32;
    fill(&b, b.master, PARAMETERS / 2);
    memcpy(b.master + PARAMETERS / 2, b.master, weights / 2);
    for (int l = 0; l < 2; l++)
        for (int t = 0; t < 2; t++) {
            b.T = length[l];
            b.N = b.B * b.T;
            b.dt = t ? DS_BF16 : DS_F32;
            for (int64_t n = 0; n < b.N; n++) {
                b.token[n] = (int32_t)((uint64_t)n * 2654435761u % V);
                b.target[n] = (int32_t)((uint64_t)(n + 1) * 2654435761u % V);
                b.pos[n] = (int32_t)(n % b.T);
            }
            run(&b);
        }
    return 0;
}
