/* Does communication hide behind compute? Two ranks of two nodes in this process speak TCP over loopback, which
 * overlap.sh has made slow; layers do not compute but sleep as long as their traffic takes.
 *
 *   overlap STAGE NAP-US        prints: compute alone, communication alone, both, and both / the longer
 */
#include "engine/train/train.h"

#include "engine/base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LAYERS "napping*32, waking"
#define ROWS 256
#define COLS 1024
#define STEPS 4

static unsigned nap_us;

static int nap_check(const struct ds_site *site, const struct ds_tensor *x, struct err *err)
{
    return 0;
}

static int nap_params(const struct ds_site *site, struct ds_param *out, struct err *err)
{
    out[0] = (struct ds_param){.name = "w", .part = {{"", ROWS}}, .nparts = 1, .cols = COLS, .unit = 1};
    return 1;
}

static int nap_shapes(const struct ds_site *site, int64_t B, int64_t T, const struct ds_tensor *x,
                      struct ds_tensor *y, struct err *err)
{
    *y = (struct ds_tensor){NULL, site->dtype, 3, {B, T, 1}};
    return 0;
}

static int nap_memory(const struct ds_site *site, const struct kernels *k, struct ds_plans *plans, int64_t B,
                      int64_t T, struct ds_memory *out, struct err *err)
{
    *out = (struct ds_memory){0};
    return 0;
}

static int64_t nap_flops(const struct ds_site *site, int64_t B, int64_t T)
{
    return 1;
}

static int nap_create(void **state, const struct ds_site *site, const struct kernels *k, struct ds_plans *plans,
                      int64_t B, int64_t T, struct err *err)
{
    *state = NULL;
    return 0;
}

static void nap_destroy(void *state)
{
}

static int nap_forward(void *state, struct ds_call *c, struct err *err)
{
    usleep(nap_us);
    if (c->y)
        memset(c->y->data, 0, tensor_bytes(c->y));
    if (c->loss) {
        c->loss[0] += 1;
        c->loss[1] += 1;
    }
    return 0;
}

/* Two gathers forward and backward, and one reduction: a backward has two parts of three. */
static int nap_backward(void *state, struct ds_call *c, struct err *err)
{
    usleep(2 * nap_us);
    if (c->dx)
        memset(c->dx->data, 0, tensor_bytes(c->dx));
    if (c->g[0].beta == 0)
        memset(c->g[0].data, 0, sizeof(float) * ROWS * COLS);
    return 0;
}

#define NAP(TYPE, CAPS)                                                                                       \
    {                                                                                                         \
        .type = TYPE, .abi = DS_LAYER_ABI, .caps = CAPS, .check = nap_check, .params = nap_params,            \
        .shapes = nap_shapes, .memory = nap_memory, .flops = nap_flops, .create = nap_create,                 \
        .destroy = nap_destroy, .forward = nap_forward, .backward = nap_backward                              \
    }
static const struct ds_layer_ops napping = NAP("napping", 0), waking = NAP("waking", DS_CAP_LOSS);

struct rank {
    struct boot *boot;
    const struct settings_rows *rows;
    struct err err;
    double seconds; /* a step, the shortest */
    int rc;
};

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct setup *s = NULL;
    struct train *t = NULL;

    r->seconds = 1e9;
    r->rc = setup_create(&s, r->rows, r->boot->world, 1, NULL, &r->err);
    if (!r->rc)
        r->rc = train_create(&t, s, r->boot, NULL, &r->err);
    for (int i = 0; i < STEPS && !r->rc; i++) {
        r->rc = train_step(t, &r->err);
        if (i && (double)t->step_ns * 1e-9 < r->seconds)
            r->seconds = (double)t->step_ns * 1e-9;
    }
    train_destroy(t);
    setup_destroy(s);
    return NULL;
}

static double step_time(int world, unsigned us, const struct settings_rows *rows)
{
    struct boot_world *w = boot_world_create(world, world);
    struct rank r[2];
    pthread_t thread[2];
    double slowest = 0;

    nap_us = us;
    for (int i = 0; i < world; i++) {
        r[i] = (struct rank){.boot = boot_world_rank(w, i), .rows = rows};
        pthread_create(&thread[i], NULL, rank_main, &r[i]);
    }
    for (int i = 0; i < world; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < world; i++) {
        if (r[i].rc) {
            fprintf(stderr, "rank %d: %s\n", i, r[i].err.text);
            exit(1);
        }
        slowest = r[i].seconds > slowest ? r[i].seconds : slowest;
    }
    boot_world_destroy(w);
    return slowest;
}

static void set(struct settings_rows *rows, const char *path, const char *value)
{
    settings_rows_add(rows, path, value, "overlap");
}

int main(int argc, char **argv)
{
    struct settings_rows rows = {0};
    char text[] = "/tmp/ds-overlap-XXXXXX";
    int fd = mkstemp(text);
    double compute, comm, apart, both, longer;

    if (argc != 3 || fd < 0 || model_register(&napping) || model_register(&waking))
        return fprintf(stderr, "usage: overlap STAGE NAP-US\n"), 2;
    for (int i = 0; i < 200; i++)
        if (write(fd, "tick tock ", 10) != 10)
            return 1;
    close(fd);
    set(&rows, "data.train", text);
    set(&rows, "data.seq_len", "4");
    set(&rows, "model.layers", LAYERS);
    set(&rows, "train_micro_batch_size_per_gpu", "1");
    set(&rows, "gradient_accumulation_steps", "1");
    set(&rows, "run.steps", "100");
    set(&rows, "run.threads", "1");
    set(&rows, "zero_optimization.stage", argv[1]);
    set(&rows, "zero_optimization.stage3_max_live_parameters", "1e6");
    set(&rows, "zero_optimization.stage3_max_reuse_distance", "0");
    set(&rows, "zero_optimization.overlap_comm", "false");
    compute = step_time(1, (unsigned)atoi(argv[2]), &rows);
    comm = step_time(2, 0, &rows);
    apart = step_time(2, (unsigned)atoi(argv[2]), &rows);
    set(&rows, "zero_optimization.overlap_comm", "true");
    both = step_time(2, (unsigned)atoi(argv[2]), &rows);
    longer = compute > comm ? compute : comm;
    printf("stage %s: compute %.3f s, communication %.3f s, one after the other %.3f s, overlapped %.3f s: %.3f of "
           "the longer\n",
           argv[1], compute, comm, apart, both, both / longer);
    settings_rows_clear(&rows);
    return unlink(text);
}
