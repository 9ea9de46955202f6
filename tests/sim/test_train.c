/* The training loop: the loss curve and the weights do not depend on how many ranks there are nor on the stage, and
 * what is done beside training changes nothing. What a run goes on from: test_resume.c. */
#include "tests/sim/train_harness.h"

#include "engine/base/buf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* Takes a setting out again, if that is so. */
static void drop(struct settings_rows *rows, const char *path, int so)
{
    struct settings_rows kept = {0};

    if (!so)
        return;
    for (int i = 0; i < rows->n; i++)
        if (strcmp(rows->row[i].path, path))
            settings_rows_add(&kept, rows->row[i].path, rows->row[i].value, rows->row[i].where);
    settings_rows_clear(rows);
    *rows = kept;
}

static int is_narrow(const char *precision)
{
    return strcmp(precision, "fp32") != 0;
}

/* The switches of a precision: "fp32", "bf16", "fp16". */
#define PRECISION(p) "bf16.enabled", !strcmp(p, "bf16") ? "true" : "false", "fp16.enabled", \
                     !strcmp(p, "fp16") ? "true" : "false"

static void worlds(const char *precision, const char *form, const char *mask)
{
    static const char *const micro[] = {"", "3", "2", "2", "3"};
    struct result one = {0};

    for (int world = 1; world <= 4; world++) {
        struct settings_rows rows = harness_rows(harness_job, NULL, PRECISION(precision), "model.form", form,
                                                 "data.doc_mask", mask, "data.doc_token", "10",
                                                 "train_micro_batch_size_per_gpu", micro[world],
                                                 "model.resid_dropout", "0.1", "model.attn_dropout", "0.1",
                                                 "model.embd_dropout", "0.1", NULL);
        struct result r = harness_train(world, 20, &rows);

        if (world == 1) {
            assert_true(r.loss[19] < r.loss[0] - 0.5); /* it learns */
            one = r;
        } else {
            assert_close(&r, &one, 20, is_narrow(precision));
            result_clear(&r);
        }
        settings_rows_clear(&rows);
    }
    result_clear(&one);
}

static void ranks_do_not_change_the_curve(void **state)
{
    worlds("fp32", "gpt2", "false");
}

static void nor_in_llama_form_with_documents(void **state)
{
    worlds("fp32", "llama", "true");
}

static void nor_in_16_bits(void **state)
{
    worlds("bf16", "gpt2", "true");
    worlds("fp16", "gpt2", "true");
}

/* ENGINE 7: with one micro-batch all stages agree to the bit; with several {0, 1} and {2, 3} do, and the two
 * sets within the bounds. */
static void assert_bits(const struct result *a, const struct result *b, int steps)
{
    for (int i = 0; i < steps; i++) {
        assert_true(a->loss[i] == b->loss[i]);
        assert_true(a->norm[i] == b->norm[i]);
    }
    assert_memory_equal(a->weight, b->weight, a->n * sizeof *a->weight);
    assert_true(a->valid == b->valid);
    assert_true(a->hash == b->hash);
}

#define STAGE_STEPS 4

/* Stages 0 to 3 of a job; persist: layers of stage 3 that are held whole, live: weights that stay gathered. All within
 * the bounds of one rank's run, which the first call, of one rank, leaves in *one. */
static void stages(int world, const char *accumulation, const char *precision, const char *tie, struct result *one)
{
    static const struct {
        const char *stage, *overlap, *persist, *live;
    } c[] = {{"0", "false", "0", "0"}, {"1", "false", "0", "0"},    {"2", "false", "0", "0"},
             {"3", "false", "0", "0"}, {"2", "true", "0", "0"},     {"3", "true", "0", "1e9"},
             {"3", "true", "1e3", "3e4"}, {"3", "false", "100", "2e4"}};
    struct result r[8];

    for (int i = 0; i < 8; i++) {
        struct settings_rows rows = harness_rows(harness_job, NULL, "train_batch_size", "252",
                                                 "gradient_accumulation_steps", accumulation, PRECISION(precision),
                                                 "zero_optimization.stage", c[i].stage,
                                                 "zero_optimization.overlap_comm", c[i].overlap,
                                                 "zero_optimization.stage3_param_persistence_threshold",
                                                 c[i].persist, "zero_optimization.stage3_max_live_parameters",
                                                 c[i].live, "model.tie_embedding", tie, "model.resid_dropout",
                                                 "0.1", "model.freeze", "block.1.norm1*", NULL);

        r[i] = harness_train(world, STAGE_STEPS, &rows);
        settings_rows_clear(&rows);
        if (i != 2 || !strcmp(accumulation, "1"))
            assert_bits(&r[i], &r[i > 2 ? 2 : 0], STAGE_STEPS);
        if (!one->weight)
            *one = r[0];
        assert_close(&r[i], one, STAGE_STEPS, is_narrow(precision));
    }
    for (int i = 0; i < 8; i++)
        if (r[i].weight != one->weight)
            result_clear(&r[i]);
}

static void stages_agree(void **state)
{
    static const int world[] = {1, 2, 3, 4, 7};
    struct result one = {0};

    for (int i = 0; i < 5; i++) {
        stages(world[i], "1", "fp32", "true", &one);
        stages(world[i], "3", "fp32", "true", &one);
    }
    result_clear(&one);
}

static void stages_agree_in_16_bits_and_untied(void **state)
{
    static const struct {
        const char *precision, *tie;
    } c[] = {{"bf16", "false"}, {"fp16", "true"}};

    for (int i = 0; i < 2; i++) {
        struct result one = {0};

        stages(1, "1", c[i].precision, c[i].tie, &one);
        stages(3, "1", c[i].precision, c[i].tie, &one);
        stages(2, "3", c[i].precision, c[i].tie, &one);
        result_clear(&one);
    }
}

/* The job stopped at step 5 of 12 and resumed gives the bits of the run that was not. */
static void resumes(const struct settings_rows *rows, const struct result *whole, const char *name)
{
    static int n;
    char *run = xasprintf("%s/%s-%d", harness_dir, name, n++);
    struct settings_rows save = harness_with(rows, "run.dir", run);
    struct settings_rows again = harness_with(&save, "run.resume", run);
    struct result a = harness_train(2, 5, &save), b = harness_train(2, 12, &again);

    assert_same(&b, whole, 5, 12);
    result_clear(&a);
    result_clear(&b);
    settings_rows_clear(&save);
    settings_rows_clear(&again);
    free(run);
}

/* Each optimizer: one rank, two, three; what stage 1 splits is what stage 0 holds whole, to the bit. A
 * resumed run has the moments again. */
static void optimizers_agree(void **state)
{
    static const struct {
        const char *type, *lr, *key, *value;
    } o[] = {
        {"Adam", "3e-3", "optimizer.params.adam_w_mode", "false"},
        {"Lion", "3e-4", "optimizer.params.betas", "0.9, 0.95"},
        {"Adagrad", "1e-2", "optimizer.params.eps", "1e-8"},
        {"SGD", "0.3", "optimizer.params.momentum", "0"},
        {"SGD", "0.1", "optimizer.params.momentum", "0.9"},
        {"Lamb", "1e-2", "optimizer.params.max_coeff", "5"},
    };

    for (size_t k = 0; k < sizeof o / sizeof *o; k++) {
        struct result one = {0};

        for (int world = 1; world <= 3; world++) {
            struct settings_rows a = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                                  "optimizer.type", o[k].type, "optimizer.params.lr", o[k].lr,
                                                  o[k].key, o[k].value, NULL);
            struct settings_rows b = harness_with(&a, "zero_optimization.stage", "1");
            struct result x, y;

            drop(&a, "optimizer.params.betas", k != 0 && k != 1);
            drop(&b, "optimizer.params.betas", k != 0 && k != 1);
            x = harness_train(world, 12, &a);
            y = harness_train(world, 12, &b);
            assert_true(x.loss[11] < x.loss[0] - 0.1); /* it learns */
            for (int i = 0; i < 12; i++)
                assert_true(x.loss[i] == y.loss[i]);
            if (world == 2)
                resumes(&b, &y, o[k].type);
            if (world == 1)
                one = x;
            else
                assert_close(&x, &one, 12, 0);
            if (world > 1)
                result_clear(&x);
            result_clear(&y);
            settings_rows_clear(&a);
            settings_rows_clear(&b);
        }
        result_clear(&one);
    }
}

/* A power of two before and after the sum changes no bit of a gradient that is not tiny. */
static void predividing_changes_nothing(void **state)
{
    struct settings_rows plain = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1", NULL);
    struct settings_rows divided = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                                "prescale_gradients", "true", "gradient_predivide_factor",
                                                "4", NULL);
    struct result a = harness_train(2, 8, &plain), b = harness_train(2, 8, &divided);

    assert_same(&a, &b, 0, 8);
    result_clear(&a);
    result_clear(&b);
    settings_rows_clear(&plain);
    settings_rows_clear(&divided);
}

/* Law a: evaluation and checkpoints beside training change no bit of it. */
static void evaluation_and_saving_change_nothing(void **state)
{
    char *run = xasprintf("%s/beside", harness_dir);
    struct settings_rows plain = harness_rows(harness_job, NULL, "train_micro_batch_size_per_gpu", "3", NULL);
    struct settings_rows busy = harness_rows(harness_job, NULL, "train_micro_batch_size_per_gpu", "3",
                                             "run.eval_every", "2", "run.save_every", "3", "run.dir", run,
                                             NULL);
    struct result a = harness_train(2, 10, &plain), b = harness_train(2, 10, &busy);

    assert_same(&a, &b, 0, 10);
    result_clear(&a);
    result_clear(&b);
    settings_rows_clear(&plain);
    settings_rows_clear(&busy);
    free(run);
}

/* ENGINE 6: with every stream a thread of its own and random delays, the same bits. */
static void asynchronous_streams_change_nothing(void **state)
{
    for (int stage = 0; stage <= 1; stage++) {
        struct settings_rows rows = harness_rows(harness_job, NULL, "train_micro_batch_size_per_gpu", "3",
                                                 "zero_optimization.stage", stage ? "1" : "0",
                                                 "model.resid_dropout", "0.1", NULL);
        struct result plain = harness_train(2, 3, &rows), async;

        setenv("DS_DEVICE", "cpu-async", 1);
        async = harness_train(2, 3, &rows);
        unsetenv("DS_DEVICE");
        assert_same(&async, &plain, 0, 3);
        result_clear(&plain);
        result_clear(&async);
        settings_rows_clear(&rows);
    }
}

/* ENGINE 3: model states to 1 %: fp32 16 bytes a parameter, bf16 18; stage 1 on N ranks 8 + 8/N, 6 + 12/N. */
static void states_take_what_the_formula_says(void **state)
{
    static const struct {
        const char *bf16, *stage;
        int world;
        double bytes;
    } c[] = {{"false", "0", 1, 16}, {"true", "0", 1, 18},        {"false", "0", 2, 16},
             {"true", "0", 2, 18},  {"false", "1", 2, 8 + 8 / 2.0}, {"true", "1", 3, 6 + 12 / 3.0}};

    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct settings_rows rows = harness_rows(harness_job, NULL, "bf16.enabled", c[i].bf16,
                                                 "zero_optimization.stage", c[i].stage, "model.n_embd", "128",
                                                 "gradient_accumulation_steps", "1", NULL);
        struct result r = harness_train(c[i].world, 1, &rows);

        assert_true(fabs(r.state_bytes / (c[i].bytes * r.numel) - 1) < 0.01);
        result_clear(&r);
        settings_rows_clear(&rows);
    }
}

/* lr = 1e30 ruins the weights in the first update: the second step's loss is no number any more. */
static void a_run_that_is_not_finite_ends(void **state)
{
    struct settings_rows stop = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                             "optimizer.params.lr", "1e30", "scheduler.type", "none", NULL);
    struct settings_rows skip = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                             "optimizer.params.lr", "1e30", "scheduler.type", "none",
                                             "run.on_nan", "skip", NULL);
    struct result result = {0};
    struct harness_rank r = harness_alone(&stop, 20, NULL);

    assert_int_not_equal(r.rc, 0);
    assert_int_equal(r.err.code, ERR_JOB);
    assert_non_null(strstr(r.err.text, "step 2:"));
    r = harness_alone(&skip, 20, &result); /* step 2 and nine more are left out, the tenth ends it */
    assert_int_not_equal(r.rc, 0);
    assert_non_null(strstr(r.err.text, "step 11:"));
    assert_false(isfinite(result.loss[5]));
    result_clear(&result);
    settings_rows_clear(&stop);
    settings_rows_clear(&skip);
}

static int64_t length_of(const char *path, const char *value)
{
    struct settings_rows rows = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                             "run.steps", "0", path, value, NULL);
    struct err err = ERR_INIT;
    struct setup *s;
    int64_t n;

    if (setup_create(&s, &rows, 1, 1, NULL, &err) < 0)
        fail_msg("%s", err.text);
    n = s->total_steps;
    setup_destroy(s);
    settings_rows_clear(&rows);
    return n;
}

/* 12 samples of 16 tokens a step. */
static void a_run_ends_by_samples_tokens_or_time(void **state)
{
    struct settings_rows rows = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                             "run.time", "1ms", "run.steps", "100000", NULL);
    struct boot_world *w = boot_world_create(1, 1);
    struct err err = ERR_INIT;
    struct setup *s;
    struct train *t;

    assert_int_equal(length_of("run.steps", "7"), 7);
    assert_int_equal(length_of("run.samples", "24"), 2);
    assert_int_equal(length_of("run.samples", "25"), 3);
    assert_int_equal(length_of("run.tokens", "960"), 5);
    if (setup_create(&s, &rows, 1, 1, NULL, &err) < 0 ||
        train_create(&t, s, boot_world_rank(w, 0), NULL, &err) < 0 || train_run(t, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(t->stop, STOP_TIME);
    assert_true(t->step > 0 && t->step < 100000);
    train_destroy(t);
    setup_destroy(s);
    settings_rows_clear(&rows);
    boot_world_destroy(w);
}

/* The first n validation windows, each once, whoever evaluates them: sums over n = 1..5 differ by one window. */
static void validation_takes_fixed_positions(void **state)
{
    static const char *const count[] = {"1", "2", "3", "4", "5"};
    double valid[5][3];

    for (int n = 0; n < 5; n++)
        for (int world = 1; world <= 3; world++) {
            struct settings_rows rows = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                                     "run.eval_samples", count[n], "model.embd_dropout",
                                                     "0.5", NULL);
            struct result r = harness_train(world, 0, &rows);

            valid[n][world - 1] = r.valid;
            assert_true(fabs(r.valid - valid[n][0]) <= 1e-6 * valid[n][0]);
            result_clear(&r);
            settings_rows_clear(&rows);
        }
    for (int n = 1; n < 5; n++)
        assert_true(valid[n][0] != valid[n - 1][0]);
}

/* Law g: windows with no valid target at all beside full ones, so that ranks count very different numbers. */
static void uneven_valid_targets_change_nothing(void **state)
{
    char *path = xasprintf("%s/uneven.txt", harness_dir);
    FILE *f = fopen(path, "w");
    struct result one = {0};

    for (int i = 0; i < 600; i++) /* windows of 16: all document bounds, or a sentence */
        fputs(i * 7 % 10 < 5 ? "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n" : "the light is good", f);
    fclose(f);
    for (int world = 1; world <= 4; world++) {
        static const char *const micro[] = {"", "12", "2", "4", "1"};
        struct settings_rows rows = harness_rows(harness_job, NULL, "train_micro_batch_size_per_gpu",
                                                 micro[world], "data.doc_mask", "true", "data.doc_token",
                                                 "10", NULL);
        struct result r;

        settings_rows_add(&rows, "data.train", path, "test");
        r = harness_train(world, 12, &rows);
        if (world == 1) {
            one = r;
        } else {
            assert_close(&r, &one, 12, 0);
            result_clear(&r);
        }
        settings_rows_clear(&rows);
    }
    result_clear(&one);
    free(path);
}

/* Frozen parameters keep their first values, the others move. wpe (16, 32) and wte (256, 32) come first. */
static void frozen_parameters_stay(void **state)
{
    const uint64_t frozen = (16 + 256) * 32;
    struct settings_rows all = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                            "model.freeze", "*", NULL);
    struct settings_rows some = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                             "model.freeze", "embedding.*", NULL);
    struct result a = harness_train(1, 2, &all), b = harness_train(1, 2, &some);

    assert_memory_equal(a.weight, a.first, a.n * sizeof *a.weight);
    assert_true(a.norm[0] == 0);
    assert_true(b.n > frozen);
    assert_memory_equal(b.weight, b.first, frozen * sizeof *b.weight);
    for (uint64_t i = frozen; i < b.n; i += 64) /* every matrix has more than 64 elements */
        assert_true(memcmp(b.weight + i, b.first + i, (b.n - i < 64 ? b.n - i : 64) * sizeof *b.weight));
    result_clear(&a);
    result_clear(&b);
    settings_rows_clear(&all);
    settings_rows_clear(&some);
}

/* A job of 6 ranks with this setting is refused with these words; said NULL: it is taken. */
static void check_job(const char *path, const char *value, const char *said)
{
    struct settings_rows rows = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1", path, value,
                                             NULL);
    struct err err = ERR_INIT;
    struct setup *s = NULL;
    int rc = setup_create(&s, &rows, 6, 1, NULL, &err);

    if (said ? !rc || !strstr(err.text, said) : rc)
        fail_msg("%s = %s: %s", path, value, rc ? err.text : "taken");
    if (!rc)
        setup_destroy(s);
    settings_rows_clear(&rows);
}

static void settings_take_effect_or_are_refused(void **state)
{
    check_job("model.vocab_size", "auto", NULL);
    check_job("model.n_positions", "auto", NULL);
    check_job("model.vocab_size", "50k", "model.vocab_size = 50k: expected");
    check_job("model.freeze", "head.*", "is tied to embedding.");
    check_job("optimizer.lr_mul", "head.*:2", "is tied to embedding.");
    check_job("optimizer.params.adam_w_mode", "false", "optimizer.type = Adam");
    check_job("zero_optimization.zero_hpz_partition_size", "2", "zero_optimization.stage = 3");
}

/* 2 nodes of 3 ranks: the second block of 2 would lie on both. */
static void near_ranks_lie_on_one_node(void **state)
{
    struct settings_rows rows = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                             "zero_optimization.stage", "3",
                                             "zero_optimization.zero_hpz_partition_size", "2", NULL);
    struct harness_rank r[6];
    struct curve c[6];

    for (int i = 0; i < 6; i++) {
        c[i] = (struct curve){.steps = 1};
        r[i] = (struct harness_rank){.rows = &rows, .body = harness_curve, .arg = &c[i]};
    }
    harness_run(r, 6, 2);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(r[i].err.code, ERR_INPUT);
        if (!strstr(r[i].err.text, "sizes that fit these nodes: 3"))
            fail_msg("%s", r[i].err.text);
    }
    settings_rows_clear(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_do_not_change_the_curve),
        cmocka_unit_test(nor_in_llama_form_with_documents),
        cmocka_unit_test(nor_in_16_bits),
        cmocka_unit_test(stages_agree),
        cmocka_unit_test(stages_agree_in_16_bits_and_untied),
        cmocka_unit_test(optimizers_agree),
        cmocka_unit_test(settings_take_effect_or_are_refused),
        cmocka_unit_test(near_ranks_lie_on_one_node),
        cmocka_unit_test(predividing_changes_nothing),
        cmocka_unit_test(frozen_parameters_stay),
        cmocka_unit_test(evaluation_and_saving_change_nothing),
        cmocka_unit_test(asynchronous_streams_change_nothing),
        cmocka_unit_test(states_take_what_the_formula_says),
        cmocka_unit_test(a_run_that_is_not_finite_ends),
        cmocka_unit_test(a_run_ends_by_samples_tokens_or_time),
        cmocka_unit_test(validation_takes_fixed_positions),
        cmocka_unit_test(uneven_valid_targets_change_nothing),
    };

    return cmocka_run_group_tests_name("train", tests, harness_begin, harness_end);
}
