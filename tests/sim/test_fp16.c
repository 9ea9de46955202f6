/* fp16 with gradients that are spoiled: a layer of the test's own, which passes its input on and in (step, rank) of a
 * list gives one element of its gradient as inf or NaN. What the scale does then is a table worked by hand. */
#include "tests/sim/train_harness.h"

#include "engine/base/buf.h"
#include "engine/base/hash.h"
#include "engine/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define STEPS 400
#define RANKS 2
#define BATCH 4 /* samples of a step, 2 a rank */
#define ELEMENTS 24

/* ---- the layer ---- */

struct spoil {
    int64_t step; /* from 0 */
    int rank;
    float value;
};

/* 16 of 800 (step, rank) pairs. */
static const struct spoil sixteen[] = {
    {5, 0, INFINITY},   {5, 1, NAN},        {9, 1, NAN},   {60, 0, -INFINITY}, {61, 0, INFINITY},
    {62, 1, NAN},       {140, 1, INFINITY}, {150, 0, NAN}, {151, 1, INFINITY}, {152, 0, NAN},
    {230, 0, NAN},      {231, 1, INFINITY}, {300, 1, NAN}, {301, 0, INFINITY}, {302, 1, NAN},
    {390, 0, INFINITY}, {-1, 0, 0},
};
static const struct spoil two[] = {{3, 1, INFINITY}, {4, 0, NAN}, {-1, 0, 0}};
static const struct spoil *spoils;

static const struct spoil *find(int64_t step, int rank)
{
    for (const struct spoil *s = spoils; s->step >= 0; s++)
        if (s->step == step && s->rank == rank)
            return s;
    return NULL;
}

static int check(const struct ds_site *site, const struct ds_tensor *x, struct err *err)
{
    return 0;
}

static int params(const struct ds_site *site, struct ds_param *out, struct err *err)
{
    out[0] = (struct ds_param){.name = "p", .part = {{"", ELEMENTS}}, .nparts = 1, .cols = 1, .unit = 1};
    return 1;
}

static int shapes(const struct ds_site *site, int64_t B, int64_t T, const struct ds_tensor *x, struct ds_tensor *y,
                  struct err *err)
{
    *y = *x;
    return 0;
}

static int memory(const struct ds_site *site, const struct kernels *k, struct ds_plans *plans, int64_t B, int64_t T,
                  struct ds_memory *out, struct err *err)
{
    *out = (struct ds_memory){0};
    return 0;
}

static int64_t flops(const struct ds_site *site, int64_t B, int64_t T)
{
    return 0;
}

static int create(void **state, const struct ds_site *site, const struct kernels *k, struct ds_plans *plans, int64_t B,
                  int64_t T, struct err *err)
{
    *state = NULL;
    return 0;
}

static void destroy(void *state)
{
}

static int forward(void *state, struct ds_call *c, struct err *err)
{
    memcpy(c->y->data, c->x->data, tensor_bytes(c->x));
    return 0;
}

static int backward(void *state, struct ds_call *c, struct err *err)
{
    int64_t step = (int64_t)(c->batch->sample[0] / BATCH);
    int rank = (int)(c->batch->sample[0] % BATCH) / (BATCH / RANKS);
    const struct spoil *s = find(step, rank);
    float *g = c->g[0].data;

    if (c->want & DS_WANT_DX)
        memcpy(c->dx->data, c->dy->data, tensor_bytes(c->dy));
    if (!(c->want & DS_WANT_DW))
        return 0;
    for (int i = 0; i < ELEMENTS && c->g[0].beta == 0; i++)
        g[i] = 0;
    if (s)
        g[(step * 7 + rank) % ELEMENTS] = s->value;
    return 0;
}

static const struct ds_layer_ops spoiled = {
    .type = "spoiled",
    .abi = DS_LAYER_ABI,
    .check = check,
    .params = params,
    .shapes = shapes,
    .memory = memory,
    .flops = flops,
    .create = create,
    .destroy = destroy,
    .forward = forward,
    .backward = backward,
};

/* ---- the run ---- */

static const char base[] = "train_batch_size = 4\ntrain_micro_batch_size_per_gpu = 2\n"
                           "[optimizer.params]\nlr = 1e-3\nweight_decay = 0.1\n"
                           "[scheduler]\ntype = WarmupLR\n[scheduler.params]\nwarmup_num_steps = 1000\n"
                           "[fp16]\nenabled = true\ninitial_scale_power = 7\nloss_scale_window = 40\n"
                           "[model]\nlayers = embedding, block, spoiled, norm, head\n"
                           "n_head = 2\nn_embd = 16\n"
                           "[data]\nseq_len = 8\nvalid_split = 0.1\n"
                           "[run]\nseed = 5\nthreads = 1\nsteps = 400\n";

/* From the end of which step on the scale is what: window 40, hysteresis 2, from 2^7. */
static const struct {
    int64_t step;
    double scale;
} table[] = {{0, 128},  {9, 64},   {50, 128}, {61, 64},  {62, 32},  {103, 64}, {150, 32}, {151, 16},
             {152, 8},  {193, 16}, {231, 8},  {272, 16}, {301, 8},  {302, 4},  {343, 8},  {383, 16}};

static double scale_after(int64_t step)
{
    double scale = 0;

    for (size_t i = 0; i < sizeof table / sizeof *table && table[i].step <= step; i++)
        scale = table[i].scale;
    return scale;
}

/* All that a step left out may not touch. */
struct kept {
    uint64_t hash;
    int64_t update, applied;
    float lr;
};

static struct kept kept_of(const struct train *t)
{
    const struct param_table *pt = t->setup->table;
    struct kept k = {.update = t->update, .applied = t->applied, .lr = t->scalars.lr};

    for (int kind = 0; kind < ZERO_KINDS; kind++)
        for (int f = 0; f < pt->nflats; f++)
            k.hash = k.hash * 31 + hash64(zero_slice(t->zero, (enum zero_kind)kind, f, t->comm->rank),
                                          pt->flat[f].slice * sizeof(float));
    return k;
}

struct run {
    int64_t to;
    struct kept end;
    char why[128]; /* cmocka's asserts are for the main thread */
};

static int step_once(struct train *t, struct run *r, struct err *err)
{
    struct kept before = kept_of(t), after;
    int64_t step = t->step, samples = t->samples;
    int bad = find(step, 0) || find(step, 1);

    if (train_step(t, err) < 0)
        return -1;
    after = kept_of(t);
    if (t->scalars.skip != bad || (before.hash == after.hash) != bad || after.update != before.update + !bad ||
        after.applied != before.applied + (bad ? 0 : BATCH) || (bad && after.lr != before.lr))
        snprintf(r->why, sizeof r->why, "step %lld was %sleft out, or not as a whole", (long long)step,
                 bad ? "not " : "");
    if (t->step != step + 1 || t->samples != samples + BATCH)
        snprintf(r->why, sizeof r->why, "step %lld: the data did not advance", (long long)step);
    if (t->scale.scale != scale_after(step))
        snprintf(r->why, sizeof r->why, "step %lld: scale %g", (long long)step, t->scale.scale);
    return r->why[0] ? err_set(err, ERR_JOB, "%s", r->why) : 0;
}

static int body(struct train *t, void *arg, struct err *err)
{
    struct run *r = arg;

    while (t->step < r->to)
        if (step_once(t, r, err) < 0)
            return -1;
    r->end = kept_of(t);
    if (t->setup->job.run_dir && train_save(t, err) < 0)
        return -1;
    for (int64_t step; t->writer && ckpt_poll(t->writer, 1, &step, err) > 0;)
        ;
    return 0;
}

static void train(const struct settings_rows *rows, int64_t to, struct run run[RANKS])
{
    struct harness_rank r[RANKS];

    for (int i = 0; i < RANKS; i++) {
        run[i] = (struct run){.to = to};
        r[i] = (struct harness_rank){.rows = rows, .body = body, .arg = &run[i]};
    }
    harness_run(r, RANKS, 1);
    harness_ended_well(r, RANKS);
}

static void exactly_the_spoiled_steps_are_left_out(void **state)
{
    static const char *const stage[] = {"0", "1", "2", "3"};

    spoils = sixteen;
    for (int i = 0; i < 4; i++) {
        struct settings_rows rows = harness_rows(base, NULL, "zero_optimization.stage", stage[i], NULL);
        struct run run[RANKS];

        train(&rows, STEPS, run);
        for (int k = 0; k < RANKS; k++) /* 400 - 15: two of the sixteen are in one step */
            assert_int_equal(run[k].end.update, 385);
        settings_rows_clear(&rows);
    }
}

/* The scale, its hysteresis and its window go on where the checkpoint left them. */
static void a_resumed_run_goes_on_with_the_scale(void **state)
{
    char *dir = xasprintf("%s/fp16", harness_dir);
    struct settings_rows whole = harness_rows(base, NULL, NULL), save = harness_with(&whole, "run.dir", dir),
                         again = harness_with(&whole, "run.resume", dir);
    struct run a[RANKS], b[RANKS];

    spoils = sixteen;
    train(&whole, STEPS, a);
    train(&save, 231, b); /* one overflow of the hysteresis is spent */
    train(&again, STEPS, b);
    for (int k = 0; k < RANKS; k++) {
        assert_true(a[k].end.hash == b[k].end.hash);
        assert_int_equal(a[k].end.update, b[k].end.update);
    }
    settings_rows_clear(&whole);
    settings_rows_clear(&save);
    settings_rows_clear(&again);
    free(dir);
}

static int any_step(struct train *t, void *arg, struct err *err)
{
    for (int i = 0; i < 12; i++)
        if (train_step(t, err) < 0)
            return -1;
    return 0;
}

static void the_floor_names_step_tensor_and_kind(void **state)
{
    static const struct {
        const char *key, *value, *want;
    } c[] = {{"fp16.initial_scale_power", "1", /* 2, then 1, the floor */
              "step 5: the gradient is not finite (NaN, first in spoiled.p) at the smallest loss scale, 1"},
             {"fp16.initial_scale_power", "0",
              "step 4: the gradient is not finite (inf, first in spoiled.p) at the smallest loss scale, 1"}};

    spoils = two;
    for (int i = 0; i < 2; i++)
        for (int stage = 0; stage <= 3; stage++) {
            char s[2] = {(char)('0' + stage), 0};
            struct settings_rows rows = harness_rows(base, NULL, "fp16.hysteresis", "1", "zero_optimization.stage", s,
                                                     c[i].key, c[i].value, NULL);
            struct harness_rank r[RANKS];

            for (int k = 0; k < RANKS; k++)
                r[k] = (struct harness_rank){.rows = &rows, .body = any_step};
            harness_run(r, RANKS, 1);
            for (int k = 0; k < RANKS; k++) {
                assert_int_equal(r[k].rc, -1);
                assert_memory_equal(r[k].err.text, c[i].want, strlen(c[i].want));
            }
            settings_rows_clear(&rows);
        }
}

/* A static scale leaves such steps out too, and does not move. */
static int static_scale(struct train *t, void *arg, struct err *err)
{
    int rc = any_step(t, arg, err);

    if (!rc && (t->skipped != 2 || t->update != 10 || t->scale.scale != 512))
        return err_set(err, ERR_JOB, "%lld left out, scale %g", (long long)t->skipped, t->scale.scale);
    return rc;
}

static void a_static_scale_stays(void **state)
{
    struct settings_rows rows = harness_rows(base, NULL, "fp16.loss_scale", "512", NULL);
    struct harness_rank r[RANKS];

    spoils = two;
    for (int k = 0; k < RANKS; k++)
        r[k] = (struct harness_rank){.rows = &rows, .body = static_scale};
    harness_run(r, RANKS, 1);
    harness_ended_well(r, RANKS);
    settings_rows_clear(&rows);
}

static void both_precisions_are_refused(void **state)
{
    struct settings_rows rows = harness_rows(base, NULL, "bf16.enabled", "true", NULL);
    struct harness_rank r = harness_alone(&rows, 1, NULL);

    assert_int_equal(r.rc, -1);
    assert_non_null(strstr(r.err.text, "bf16.enabled and fp16.enabled exclude each other"));
    settings_rows_clear(&rows);
}

static int begin(void **state)
{
    return ds_register(&spoiled) < 0 ? -1 : harness_begin(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exactly_the_spoiled_steps_are_left_out),
        cmocka_unit_test(a_resumed_run_goes_on_with_the_scale),
        cmocka_unit_test(the_floor_names_step_tensor_and_kind),
        cmocka_unit_test(a_static_scale_stays),
        cmocka_unit_test(both_precisions_are_refused),
    };

    return cmocka_run_group_tests_name("fp16", tests, begin, harness_end);
}
