/* A whole training step of GPT-2 124M against its ceiling: the same matrix products (y, dx and dW of every
 * weight matrix, in the layouts that the layers use) through oneDNN alone, in the same run.
 *
 *   bench-step [SECONDS [THREADS]]   time spent on each row (10), threads (all cores)
 *
 * Steps and products take turns; medians are compared. A step is everything: data, forward, backward, norm,
 * clipping, AdamW.
 */
#include "engine/train/train.h"

#include "engine/base/buf.h"
#include "engine/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { C = 768, LAYERS = 12, VOCAB = 50257, MAX_RUNS = 1000 };

struct product {
    struct ds_matmul shape;
    const struct ds_plan *plan;
    int times;
};

struct products {
    struct ds_plans *plans;
    struct product p[16];
    int n;
    size_t work_bytes;
    char *a, *b, *c, *work;
};

static void die(const char *what)
{
    fprintf(stderr, "bench-step: %s\n", what);
    exit(1);
}

static void add(struct products *s, struct ds_matmul m, int times)
{
    struct product *p = &s->p[s->n++];
    size_t work;
    char why[256];

    p->shape = m;
    p->times = times;
    p->plan = kernels_cpu.matmul_plan(s->plans, &m, &work, why);
    if (!p->plan)
        die(why);
    s->work_bytes = work > s->work_bytes ? work : s->work_bytes;
}

/* y = x W, dx = dy W', dW of one weight; column-parallel ones are stored (out, in), row-parallel ones
 * (in, out). */
static void add_weight(struct products *s, int64_t N, int64_t in, int64_t out, int column,
                       enum ds_dtype dt, int times)
{
    add(s, (struct ds_matmul){.m = N, .n = out, .k = in, .batch = 1, .tb = column, .ab = dt, .c = dt},
        times);
    add(s, (struct ds_matmul){.m = N, .n = in, .k = out, .batch = 1, .tb = !column, .ab = dt, .c = dt},
        times);
    add(s, (struct ds_matmul){.m = column ? out : in, .n = column ? in : out, .k = N, .batch = 1,
                              .ta = 1, .ab = dt, .c = DS_F32, .accumulate = 1},
        times);
}

static void products_make(struct products *s, int64_t N, enum ds_dtype dt)
{
    int64_t big = (int64_t)VOCAB * (N > C ? N : C);

    *s = (struct products){.plans = kernels_cpu.plans_create()};
    add_weight(s, N, C, 3 * C, 1, dt, LAYERS);
    add_weight(s, N, C, C, 0, dt, LAYERS);
    add_weight(s, N, C, 4 * C, 1, dt, LAYERS);
    add_weight(s, N, 4 * C, C, 0, dt, LAYERS);
    add_weight(s, N, C, VOCAB, 1, dt, 1);
    s->a = xcalloc((size_t)big, 4);
    s->b = xcalloc((size_t)VOCAB * C, 4);
    s->c = xcalloc((size_t)big, 4);
    s->work = xcalloc(s->work_bytes + 64, 1);
}

static double products_run(struct products *s)
{
    int64_t begin = clock_ns();

    for (int i = 0; i < s->n; i++)
        for (int t = 0; t < s->p[i].times; t++)
            kernels_cpu.matmul_run(s->p[i].plan, s->a, s->b, s->c, NULL, 0, s->work, NULL);
    return (double)(clock_ns() - begin) * 1e-9;
}

static void products_clear(struct products *s)
{
    kernels_cpu.plans_destroy(s->plans);
    free(s->a);
    free(s->b);
    free(s->c);
    free(s->work);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[n / 2];
}

static void make_text(const char *path)
{
    FILE *f = fopen(path, "w");
    unsigned x = 1;

    for (int i = 0; f && i < 1 << 20; i++) {
        x = x * 1103515245u + 12345u;
        fputc((int)(32 + (x >> 16) % 95), f);
    }
    if (!f || fclose(f))
        die("cannot write a text to train on");
}

static struct train *trainer(struct setup **setup, struct boot *boot, const char *text, int64_t T,
                             int bf16, const char *threads)
{
    struct settings_rows rows = {0};
    struct err err = ERR_INIT;
    struct train *t;
    char seq[32];

    snprintf(seq, sizeof seq, "%lld", (long long)T);
    settings_rows_add(&rows, "train_micro_batch_size_per_gpu", "4", "bench");
    settings_rows_add(&rows, "bf16.enabled", bf16 ? "true" : "false", "bench");
    settings_rows_add(&rows, "model.vocab_size", "50257", "bench");
    settings_rows_add(&rows, "model.n_positions", "1024", "bench");
    settings_rows_add(&rows, "data.train", text, "bench");
    settings_rows_add(&rows, "data.seq_len", seq, "bench");
    settings_rows_add(&rows, "run.steps", "1000000", "bench");
    settings_rows_add(&rows, "run.threads", threads, "bench");
    if (setup_create(setup, &rows, 1, 1, NULL, &err) < 0 ||
        train_create(&t, *setup, boot, NULL, &err) < 0)
        die(err.text);
    settings_rows_clear(&rows);
    return t;
}

static void row(struct boot *boot, const char *text, int64_t T, int bf16, double seconds,
                const char *threads)
{
    static double step[MAX_RUNS], product[MAX_RUNS];
    struct products s;
    struct setup *setup;
    struct train *t = trainer(&setup, boot, text, T, bf16, threads);
    struct mem_info mem;
    struct err err = ERR_INIT;
    int64_t begin;
    int n = 0;

    products_make(&s, 4 * T, bf16 ? DS_BF16 : DS_F32);
    for (begin = clock_ns(); n < 3 || (n < MAX_RUNS && clock_ns() - begin < seconds * 1e9); n++) {
        if (train_step(t, &err) < 0)
            die(err.text);
        step[n] = (double)t->step_ns * 1e-9;
        product[n] = products_run(&s);
    }
    t->dev->ops->info(t->dev, &mem);
    printf("%-5s 4 x %-4lld %9.1f %9.1f %10.0f %8.2f %12.3f\n", bf16 ? "bf16" : "fp32", (long long)T,
           1e3 * median(step, n), 1e3 * median(product, n), 4.0 * (double)T / median(step, n),
           median(product, n) / median(step, n),
           (double)(mem.now[MEM_PARAM] + mem.now[MEM_GRAD] + mem.now[MEM_OPTIM]) /
               (double)setup->table->numel);
    fflush(stdout);
    products_clear(&s);
    train_destroy(t);
    setup_destroy(setup);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    const char *threads = argc > 2 ? argv[2] : "0";
    char text[] = "/tmp/ds-bench-step-XXXXXX";
    struct boot_world *w = boot_world_create(1, 1);

    if (mkstemp(text) < 0)
        die("cannot make a temporary file");
    make_text(text);
    printf("GPT-2 124M, isa %s, bf16 products %s\n", kernels_cpu_isa(),
           kernels_cpu_bf16_native() ? "native" : "emulated");
    printf("type  batch    step [ms] products  tokens/s products/step  states [B/param]\n");
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int64_t T = 64; T <= 512; T *= 8)
            row(boot_world_rank(w, 0), text, T, bf16, seconds, threads);
    boot_world_destroy(w);
    unlink(text);
    return 0;
}
