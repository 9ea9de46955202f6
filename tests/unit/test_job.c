/* The job file: a real DeepSpeed file gets precise answers, presets come first, the batch triangle
 * holds. */
#include "engine/base/job.h"
#include "engine/base/parse.h"
#include "tests/unit/try_settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct job job;
static const char *apply(const char *text)
{
    return try_settings(job_table, job_table_n, &job, "model.", text);
}

/* Paths are unique; every default parses and lies in its own range; every alias leads somewhere. */
static void the_table_is_sound(void **state)
{
    char *path = NULL;

    (void)state;
    for (int i = 0; i < job_table_n; i++) {
        const struct setting *row = &job_table[i];

        for (int k = 0; k < i; k++)
            assert_string_not_equal(row->path, job_table[k].path);
        assert_non_null(row->help);
        assert_non_null(row->unit);
        if (row->flags & SETTING_ALIAS) {
            int found = 0;

            for (int k = 0; k < job_table_n; k++)
                found += strcmp(job_table[k].path, row->def) == 0;
            assert_int_equal(found, 1);
        } else if (row->def && !(row->flags & SETTING_PREFIX)) {
            free(path);
            path = xasprintf("%s = %s\n", row->path, row->def);
            assert_string_equal(apply(path), "");
            assert_string_equal(buf_str(&warn), ""); /* a default is never worth a word */
        }
    }
    free(path);
}

static void deepspeed_file(void **state)
{
    (void)state;
    assert_string_equal(
        apply(
            "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4, "
            "\"steps_per_print\": 100,\n"
            " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.00015, \"betas\": [0.9, "
            "0.95],\n"
            "   \"eps\": 1e-8, \"weight_decay\": 0.1, \"torch_adam\": true}},\n"
            " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": 0,\n"
            "   \"warmup_max_lr\": 0.00015, \"warmup_num_steps\": 100, \"total_num_steps\": "
            "1000}},\n"
            " \"gradient_clipping\": 1.0, \"bfloat16\": {\"enabled\": true}, \"fp16\": "
            "{\"enabled\": false,\n"
            "   \"loss_scale\": 0, \"initial_scale_power\": 16}, \"wall_clock_breakdown\": false,\n"
            " \"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": 2e8, \"overlap_comm\": "
            "true, \"round_robin_gradients\": true}}"),
        "");
    assert_string_equal(buf_str(&warn),
                        "f:3: optimizer.params.torch_adam has no effect here\n"
                        "f:8: zero_optimization.round_robin_gradients has no effect here\n");
    assert_true(job.zero_stage == 2 && job.reduce_bucket == 200000000 &&
                job.overlap_comm == OVERLAP_ON && job.max_live == 1000000000);
    assert_true(job.train_batch_size == 32 && job.micro_batch_size == 4 &&
                job.steps_per_print == 100);
    assert_true(job.lr == 0.00015 && job.betas.v[1] == 0.95 && job.weight_decay == 0.1 &&
                job.eps == 1e-8);
    assert_true(job.optim == OPTIM_ADAMW && job.sched == SCHED_WARMUP_DECAY &&
                job.warmup_num_steps == 100);
    assert_true(job.bf16 && job.total_num_steps == 1000);
    assert_true(!job.fp16.enabled && job.fp16.loss_scale == 0 && job.fp16.initial_scale_power == 16 &&
                job.fp16.window == 1000 && job.fp16.hysteresis == 2 && job.fp16.min_loss_scale == 1);
}

static void deepspeed_refusals(void **state)
{
    (void)state;
    assert_string_equal(
        apply(
            "{\"optimizer\": {\"type\": \"OneBitAdam\", \"params\": {\"max_grad_norm\": 1.0}},\n"
            "\"amp\": {\"enabled\": true},\n"
            "\"zero_optimization\": {\"stage\": 4, \"offload_optimizer\": {\"device\": \"cpu\"}},\n"
            "\"gradient_acumulation_steps\": 2}"),
        "f:1: optimizer.type = OneBitAdam: expected one of AdamW, Adam, Lion, Adagrad, SGD, Lamb (Adam "
        "is AdamW too, as in DeepSpeed, unless optimizer.params.adam_w_mode = false)\n"
        "f:1: optimizer.params.max_grad_norm = 1 is not supported, only 0: use gradient_clipping\n"
        "f:2: amp.enabled = true: section amp of DeepSpeed is not supported: use bf16.enabled or fp16.enabled\n"
        "f:3: zero_optimization.stage = 4: expected a whole number in 0..3 (what is split over the "
        "data ranks: 0 nothing, 1 optimizer states, 2 gradients too, 3 weights too)\n"
        "f:3: zero_optimization.offload_optimizer.device = cpu is not supported, only none\n"
        "f:4: unknown setting gradient_acumulation_steps; did you mean "
        "gradient_accumulation_steps?");
}

/* Part 5.3 of DeepSpeed's rules: train = micro x accumulation x world. 0: not given. */
static void batch_triangle(void **state)
{
    static const struct {
        int train, micro, acc, world, want_train, want_micro, want_acc; /* want_train 0: refused */
        const char *near;
    } cases[] = {
        {32, 4, 2, 4, 32, 4, 2, NULL},
        {32, 4, 0, 2, 32, 4, 4, NULL},
        {32, 0, 4, 2, 32, 4, 4, NULL},
        {0, 4, 2, 3, 24, 4, 2, NULL},
        {32, 0, 0, 4, 32, 8, 1, NULL},
        {0, 4, 0, 4, 16, 4, 1, NULL},
        {32, 4, 3, 4, 0, 0, 0, "32 = 4 x 2 x 4"}, /* accumulation bends */
        {33, 4, 2, 4, 0, 0, 0, "32 = 4 x 2 x 4"}, /* the total bends */
        {33, 4, 0, 4, 0, 0, 0, "32 = 4 x 2 x 4"},
        {47, 4, 0, 4, 0, 0, 0, "48 = 4 x 3 x 4"},
        {7, 0, 0, 4, 0, 0, 0, "8 = 2 x 1 x 4"},
        {1, 0, 0, 4, 0, 0, 0, "4 = 1 x 1 x 4"},
        {10, 0, 3, 2, 0, 0, 0, "12 = 2 x 3 x 2"},
        {2, 4, 0, 1, 0, 0, 0, "4 = 4 x 1 x 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200], numbers[64];
        struct err err = ERR_INIT;

        snprintf(text, sizeof text,
                 "train_batch_size = %d\ntrain_micro_batch_size_per_gpu = "
                 "%d\ngradient_accumulation_steps = %d\n",
                 cases[i].train, cases[i].micro, cases[i].acc);
        assert_string_equal(apply(text), "");
        if (cases[i].want_train) {
            assert_int_equal(job_batch(&job, &set, cases[i].world, &err), 0);
            assert_int_equal(job.train_batch_size, cases[i].want_train);
            assert_int_equal(job.micro_batch_size, cases[i].want_micro);
            assert_int_equal(job.accumulation, cases[i].want_acc);
        } else {
            assert_int_equal(job_batch(&job, &set, cases[i].world, &err), -1);
            assert_non_null(strstr(err.text, cases[i].near));
            snprintf(numbers, sizeof numbers, "train_batch_size %d is not", cases[i].train);
            assert_non_null(strstr(err.text, numbers));
        }
    }
}

static void batch_of_nothing(void **state)
{
    struct err err;

    (void)state;
    apply("gradient_accumulation_steps = 2\n");
    assert_int_equal(job_batch(&job, &set, 2, &err), -1);
    assert_non_null(strstr(err.text, "the batch size is not given"));
    apply(
        "train_micro_batch_size_per_gpu = 1000000000\ngradient_accumulation_steps = 1000000000\n");
    assert_int_equal(job_batch(&job, &set, 1000000, &err), -1);
    assert_non_null(strstr(err.text, "too large"));
}

/* A batch that was filled for one world is filled again for another. */
static void batch_again(void **state)
{
    struct err err;

    (void)state;
    apply("train_batch_size = 24\n");
    assert_int_equal(job_batch(&job, &set, 4, &err), 0);
    assert_int_equal(job.micro_batch_size, 6);
    assert_int_equal(job_batch(&job, &set, 3, &err), 0);
    assert_int_equal(job.micro_batch_size, 8);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void presets(void **state)
{
    char dir[] = "job-test-XXXXXX", a[64], models[64], tiny[80], near[64];
    struct settings_rows rows = {0};
    struct err err;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(a, sizeof a, "%s/a.ini", dir);
    snprintf(models, sizeof models, "%s/models", dir);
    snprintf(tiny, sizeof tiny, "%s/tiny.ini", models);
    snprintf(near, sizeof near, "%s/near.ini", dir);
    assert_int_equal(mkdir(models, 0777), 0);
    write_file(tiny, "[model]\nn_layer = 2\nn_head = 4\n");
    write_file(a, "train_batch_size = 8\n[model]\npreset = tiny\nn_layer = 3\n");
    setenv("DS_TEMPLATES", dir, 1);
    assert_int_equal(job_read(&rows, a, &err), 0);
    assert_int_equal(rows.n, 4);
    assert_string_equal(rows.row[0].path,
                        "model.n_layer"); /* the preset's place, the file's value */
    assert_string_equal(rows.row[0].value, "3");
    assert_string_equal(rows.row[1].value, "4");
    settings_rows_clear(&rows);

    write_file(near, "[model]\nn_layer = 9\n"); /* beside the job file */
    write_file(a, "[model]\npreset = near.ini\n");
    assert_int_equal(job_read(&rows, a, &err), 0);
    assert_string_equal(rows.row[0].value, "9");
    settings_rows_clear(&rows);

    write_file(a, "[model]\npreset = huge\n");
    assert_int_equal(job_read(&rows, a, &err), -1);
    assert_non_null(strstr(err.text, "a.ini:2: model.preset = huge: no such file"));
    settings_rows_clear(&rows);
    write_file(near, "[model]\npreset = tiny\n");
    write_file(a, "[model]\npreset = near.ini\n");
    assert_int_equal(job_read(&rows, a, &err), -1);
    assert_non_null(strstr(err.text, "near.ini:2: model.preset inside a preset"));
    settings_rows_clear(&rows);

    unsetenv("DS_TEMPLATES");
    unlink(near);
    unlink(tiny);
    unlink(a);
    rmdir(models);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_sound),
        cmocka_unit_test(deepspeed_file),
        cmocka_unit_test(deepspeed_refusals),
        cmocka_unit_test(batch_triangle),
        cmocka_unit_test(batch_of_nothing),
        cmocka_unit_test(batch_again),
        cmocka_unit_test(presets),
    };

    return cmocka_run_group_tests(tests, NULL, clear_settings);
}
