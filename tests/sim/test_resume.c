/* What a run goes on from: its own checkpoint gives the same bits, other numbers of ranks the same curve, and what does
 * not fit is refused. */
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

/* Law b: stopped at every step of 10 and resumed, and stopped twice: the same bits. */
static void a_resumed_run_is_the_run(void **state)
{
    for (int world = 1; world <= 2; world++) {
        struct settings_rows rows = harness_rows(harness_job, NULL, "train_micro_batch_size_per_gpu", "3",
                                                 "model.resid_dropout", "0.2", NULL);
        struct result whole = harness_train(world, 10, &rows);

        for (int stop = 1; stop < 10; stop++) {
            char *run = xasprintf("%s/resume-%d-%d", harness_dir, world, stop);
            int second = stop < 8 ? stop + 2 : stop; /* and a second stop */
            struct settings_rows first = harness_rows(harness_job, NULL, "train_micro_batch_size_per_gpu",
                                                      "3", "run.dir", run, "model.resid_dropout", "0.2",
                                                      NULL);
            struct settings_rows again = harness_rows(harness_job, NULL, "train_micro_batch_size_per_gpu",
                                                      "3", "run.dir", run, "run.resume", run,
                                                      "model.resid_dropout", "0.2", NULL);
            struct result a = harness_train(world, stop, &first), b, c;

            b = harness_train(world, second, &again);
            c = harness_train(world, 10, &again);
            assert_same(&c, &whole, second, 10);
            result_clear(&a);
            result_clear(&b);
            result_clear(&c);
            settings_rows_clear(&first);
            settings_rows_clear(&again);
            free(run);
        }
        result_clear(&whole);
        settings_rows_clear(&rows);
    }
}

/* Cut off between the rename to step-4 and `latest`: the run goes on there, and does not begin anew. */
static void a_whole_checkpoint_needs_no_latest(void **state)
{
    char *run = xasprintf("%s/cut", harness_dir), *latest = xasprintf("%s/ckpt/latest", run);
    struct settings_rows rows = harness_rows(harness_job, NULL, "train_micro_batch_size_per_gpu", "3", "run.dir",
                                             run, "run.resume", "auto", NULL);
    struct settings_rows plain = harness_rows(harness_job, NULL, "train_micro_batch_size_per_gpu", "3", NULL);
    struct result whole = harness_train(2, 8, &plain), a = harness_train(2, 4, &rows), b;

    assert_int_equal(unlink(latest), 0);
    b = harness_train(2, 8, &rows);
    assert_true(b.loss[3] == 0 && b.loss[4] > 0); /* began at step 4 */
    assert_same(&b, &whole, 4, 8);
    result_clear(&whole);
    result_clear(&a);
    result_clear(&b);
    settings_rows_clear(&rows);
    settings_rows_clear(&plain);
    free(run);
    free(latest);
}

static void read_shard(const char *run, int rank, struct buf *out)
{
    char *path = xasprintf("%s/ckpt/step-4/rank-%d.safetensors", run, rank), block[4096];
    FILE *f = fopen(path, "rb");
    size_t n;

    if (!f)
        fail_msg("%s: %m", path);
    buf_reset(out);
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        buf_add(out, block, n);
    fclose(f);
    free(path);
}

static void flip_last_byte(const char *run, int step)
{
    char *path = xasprintf("%s/ckpt/step-%d/rank-1.safetensors", run, step);
    FILE *f = fopen(path, "r+b");
    int c;

    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    c = fgetc(f);
    fseek(f, -1, SEEK_END);
    fputc(c ^ 1, f);
    assert_int_equal(fclose(f), 0);
    free(path);
}

/* One rank finds its part damaged: all go on from the step before, and where there is none all end. */
static void a_damaged_checkpoint_is_passed_over(void **state)
{
    char *run = xasprintf("%s/damaged", harness_dir), *step = xasprintf("%s/ckpt/step-8", run);
    struct settings_rows plain = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                              "zero_optimization.stage", "1", "run.save_every", "4", NULL);
    struct settings_rows rows = harness_with(&plain, "run.dir", run), again = harness_with(&plain, "run.resume", run),
                         exact = harness_with(&plain, "run.resume", step);
    struct result whole = harness_train(3, 10, &plain), first = harness_train(3, 8, &rows), b;
    const struct settings_rows *refused[] = {&exact, &again};

    flip_last_byte(run, 8);
    b = harness_train(3, 10, &again);
    assert_true(b.loss[3] == 0 && b.loss[4] > 0); /* began at step 4 */
    assert_same(&b, &whole, 4, 10);
    for (int i = 0; i < 2; i++) {
        struct harness_rank r[3];
        struct curve c[3] = {{.steps = 10}, {.steps = 10}, {.steps = 10}};

        if (i)
            flip_last_byte(run, 4);
        for (int k = 0; k < 3; k++)
            r[k] = (struct harness_rank){.rows = refused[i], .body = harness_curve, .arg = &c[k]};
        harness_run(r, 3, 1);
        for (int k = 0; k < 3; k++)
            assert_int_equal(r[k].rc, -1);
        assert_non_null(strstr(r[1].err.text, "is damaged (its hash differs)"));
        assert_int_equal(r[0].err.code, ERR_RANK_PEER);
    }
    result_clear(&whole);
    result_clear(&first);
    result_clear(&b);
    settings_rows_clear(&plain);
    settings_rows_clear(&rows);
    settings_rows_clear(&again);
    settings_rows_clear(&exact);
    free(run);
    free(step);
}

/* Saved on 3 ranks, resumed on 1, 2 and 4: the same losses within rounding. */
static void another_number_of_ranks_resumes(void **state)
{
    char *run = xasprintf("%s/reshape", harness_dir);
    struct settings_rows rows = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1", NULL);
    struct settings_rows save = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1", "run.dir",
                                             run, NULL);
    struct result whole = harness_train(3, 16, &rows), half = harness_train(3, 8, &save);

    for (int world = 1; world <= 4; world++) {
        char *from = xasprintf("%s/ckpt/step-8", run);
        struct settings_rows again = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                                  "run.resume", from, "zero_optimization.stage", world == 2 ?
                                                  "1" : "0", NULL);
        struct result r = harness_train(world, 16, &again);

        for (int i = 8; i < 16; i++)
            assert_true(fabs(r.loss[i] - whole.loss[i]) <= 1e-5 * whole.loss[i]);
        if (world == 3)
            assert_same(&r, &whole, 8, 16);
        result_clear(&r);
        settings_rows_clear(&again);
        free(from);
    }
    result_clear(&whole);
    result_clear(&half);
    settings_rows_clear(&rows);
    settings_rows_clear(&save);
    free(run);
}

/* Law j: weights alone are loaded, masters come from them, and with lr = 0 nothing moves. */
static void weights_only_then_no_learning(void **state)
{
    char *run = xasprintf("%s/init", harness_dir);
    struct settings_rows save = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1", "run.dir",
                                             run, NULL);
    struct settings_rows load = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                             "run.init_from", run, "optimizer.params.lr", "0", NULL);
    struct result a = harness_train(2, 6, &save), b = harness_train(2, 3, &load);

    assert_memory_equal(b.first, a.weight, a.n * sizeof *a.weight);
    assert_memory_equal(b.weight, a.weight, a.n * sizeof *a.weight);
    assert_true(b.valid == a.valid);
    result_clear(&a);
    result_clear(&b);
    settings_rows_clear(&save);
    settings_rows_clear(&load);
    free(run);
}

/* Law n: saved on 3 ranks, read and saved by 2, read and saved by 3: the shards have the same bytes. */
static void resharding_and_back_gives_the_same_bytes(void **state)
{
    static const int world[] = {3, 2, 3};
    char *run[3];
    struct buf a = BUF_INIT, b = BUF_INIT;

    for (int i = 0; i < 3; i++) {
        struct settings_rows rows;
        struct result r;

        run[i] = xasprintf("%s/reshard-%d", harness_dir, i);
        rows = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1", "run.dir", run[i], i ?
                            "run.resume" : "run.name", i ? run[i - 1] : "x", NULL);
        r = harness_train(world[i], 4, &rows);
        result_clear(&r);
        settings_rows_clear(&rows);
    }
    for (int rank = 0; rank < 3; rank++) {
        read_shard(run[0], rank, &a);
        read_shard(run[2], rank, &b);
        assert_true(a.len > 1000);
        assert_int_equal(a.len, b.len);
        assert_memory_equal(a.data, b.data, a.len);
    }
    for (int i = 0; i < 3; i++)
        free(run[i]);
    buf_clear(&a);
    buf_clear(&b);
}

static void another_run_is_refused(void **state)
{
    char *run = xasprintf("%s/refuse", harness_dir);
    struct settings_rows save = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1", "run.dir",
                                             run, NULL);
    struct settings_rows other = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1",
                                              "run.resume", run, "optimizer.params.weight_decay", "0.5",
                                              NULL);
    struct result a = harness_train(1, 2, &save);
    struct harness_rank r = harness_alone(&other, 3, NULL);

    assert_int_not_equal(r.rc, 0);
    assert_int_equal(r.err.code, ERR_INPUT);
    assert_non_null(strstr(r.err.text, "optimizer.params.weight_decay (0.1 there, 0.5 here)"));
    result_clear(&a);
    settings_rows_clear(&save);
    settings_rows_clear(&other);
    free(run);
}

/* Two ranks whose nodes hold different checkpoints under what is meant to be one path; NULL: none. */
static void start_apart(const char *zero, const char *one, const char *key, const char *said)
{
    const char *from[2] = {zero, one};
    struct settings_rows rows[2];
    struct harness_rank r[2];
    struct curve c[2];

    for (int i = 0; i < 2; i++) {
        rows[i] = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1", from[i] ? key : NULL,
                               from[i], NULL);
        c[i] = (struct curve){.steps = 10};
        r[i] = (struct harness_rank){.rows = &rows[i], .body = harness_curve, .arg = &c[i]};
    }
    harness_run(r, 2, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_not_equal(r[i].rc, 0);
        assert_int_equal(r[i].err.code, ERR_INPUT);
        if (!strstr(r[i].err.text, said))
            fail_msg("%s", r[i].err.text);
        settings_rows_clear(&rows[i]);
    }
}

static void ranks_begin_with_one_checkpoint(void **state)
{
    char *run = xasprintf("%s/apart", harness_dir), *four = xasprintf("%s/ckpt/step-4", run),
         *eight = xasprintf("%s/ckpt/step-8", run), *other = xasprintf("%s/other", harness_dir);
    struct settings_rows rows = harness_rows(harness_job, NULL, "gradient_accumulation_steps", "1", "run.dir",
                                             run, "run.save_every", "4", NULL);
    struct settings_rows second = harness_with(&rows, "run.dir", other);
    struct result a = harness_train(2, 8, &rows), b = harness_train(1, 8, &second);

    start_apart(eight, other, "run.resume", "step 8, but there are ranks with another one of that step");
    start_apart(other, eight, "run.init_from", "step 8, but there are ranks with another one of that step");
    start_apart(four, eight, "run.resume", "step 8, but there are ranks with an older one");
    start_apart(eight, four, "run.init_from", "step 8, but there are ranks with an older one");
    start_apart(NULL, four, "run.init_from", "step 4, but there are ranks with none");
    result_clear(&a);
    result_clear(&b);
    settings_rows_clear(&rows);
    settings_rows_clear(&second);
    free(run);
    free(four);
    free(eight);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_is_the_run),
        cmocka_unit_test(a_whole_checkpoint_needs_no_latest),
        cmocka_unit_test(another_number_of_ranks_resumes),
        cmocka_unit_test(resharding_and_back_gives_the_same_bytes),
        cmocka_unit_test(weights_only_then_no_learning),
        cmocka_unit_test(a_damaged_checkpoint_is_passed_over),
        cmocka_unit_test(another_run_is_refused),
        cmocka_unit_test(ranks_begin_with_one_checkpoint),
    };

    return cmocka_run_group_tests_name("resume", tests, harness_begin, harness_end);
}
