/* Activation checkpointing: layers that run forward again, and tensors that are made again, give the same bits; and
 * the memory of activations falls by what a sum by hand says. What it sends is in test_zero.c.
 */
#include "tests/sim/train_harness.h"

#include "engine/base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define STEPS 3

static const char job[] = "train_batch_size = 18\n"
                          "[optimizer.params]\nlr = 3e-3\nweight_decay = 0.1\n"
                          "[zero_optimization]\noverlap_comm = false\n"
                          "stage3_max_live_parameters = 0\nstage3_max_reuse_distance = 0\n"
                          "stage3_param_persistence_threshold = 0\n"
                          "[model]\nn_layer = 5\nn_head = 4\nn_embd = 32\n"
                          "resid_dropout = 0.1\nattn_dropout = 0.1\nembd_dropout = 0.1\n"
                          "[data]\nseq_len = 16\nvalid_split = 0.1\n"
                          "[run]\nseed = 5\nthreads = 1\nsteps = 100\neval_samples = 18\n";

static const char *const way[][2] = {{"interval", "1"}, {"interval", "2"}, {"interval", "3"},
                                     {"interval", "5"}, {"selective", "true"}};
#define WAYS (sizeof way / sizeof *way)

static struct settings_rows with_way(const struct settings_rows *rows, size_t i)
{
    char *path = xasprintf("activation_checkpointing.%s", way[i][0]);
    struct settings_rows out = harness_with(rows, path, way[i][1]);

    free(path);
    return out;
}

/* ---- the same bits ---- */

static void every_way(int world, const struct settings_rows *rows, const char *device)
{
    struct result kept = harness_train(world, STEPS, rows);

    assert_true(kept.loss[STEPS - 1] < kept.loss[0]);
    for (size_t i = 0; i < WAYS; i++) {
        struct settings_rows again = with_way(rows, i);
        struct result r;

        if (device)
            setenv("DS_DEVICE", device, 1);
        r = harness_train(world, STEPS, &again);
        unsetenv("DS_DEVICE");
        assert_same(&r, &kept, 0, STEPS);
        result_clear(&r);
        settings_rows_clear(&again);
    }
    result_clear(&kept);
}

static void form(const char *name, int world, int stage, int bf16, int several)
{
    char number[2] = {(char)('0' + stage), 0};
    struct settings_rows rows = harness_rows(job, NULL, "model.form", name, "bf16.enabled",
                                             bf16 ? "true" : "false", "zero_optimization.stage", number,
                                             "gradient_accumulation_steps", several ? "3" : "1", NULL);

    every_way(world, &rows, NULL);
    settings_rows_clear(&rows);
}

static void one_rank_is_the_same(void **state)
{
    for (int bf16 = 0; bf16 <= 1; bf16++)
        for (int several = 0; several <= 1; several++) {
            form("gpt2", 1, 0, bf16, several);
            form("llama", 1, 0, bf16, several);
        }
}

/* The two forms have the two types by turns. */
static void and_three_in_every_stage(void **state)
{
    for (int stage = 0; stage <= 3; stage++)
        for (int several = 0; several <= 1; several++) {
            form("gpt2", 3, stage, (stage + several) % 2, several);
            form("llama", 3, stage, (stage + several + 1) % 2, several);
        }
}

/* Streams are threads with delays: a layer's weights for its second forward are not those of its backward. */
static void and_with_dawdling_streams(void **state)
{
    static const struct {
        const char *stage, *live, *prefetch;
    } c[] = {{"0", "0", "0"}, {"2", "0", "0"}, {"3", "0", "0"}, {"3", "3e4", "2e4"}, {"3", "1e9", "5e7"}};

    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct settings_rows rows = harness_rows(job, NULL, "zero_optimization.stage", c[i].stage,
                                                 "zero_optimization.stage3_max_live_parameters", c[i].live,
                                                 "zero_optimization.stage3_max_reuse_distance", c[i].live,
                                                 "zero_optimization.stage3_prefetch_bucket_size",
                                                 c[i].prefetch, "zero_optimization.overlap_comm", "true",
                                                 "gradient_accumulation_steps", "3", NULL);

        every_way(3, &rows, "cpu-async");
        settings_rows_clear(&rows);
    }
}

/* It is no part of what a run is: one that kept all goes on with dropping, to the bit. */
static void a_resume_may_change_it(void **state)
{
    char *run = xasprintf("%s/resume", harness_dir);
    struct settings_rows rows = harness_rows(job, NULL, NULL), save = harness_with(&rows, "run.dir", run),
                         resume = harness_with(&rows, "run.resume", run), again = with_way(&resume, 1);
    struct result whole = harness_train(1, 2 * STEPS, &rows), first = harness_train(1, STEPS, &save),
                  rest = harness_train(1, 2 * STEPS, &again);

    assert_same(&rest, &whole, STEPS, 2 * STEPS);
    result_clear(&whole);
    result_clear(&first);
    result_clear(&rest);
    settings_rows_clear(&rows);
    settings_rows_clear(&save);
    settings_rows_clear(&resume);
    settings_rows_clear(&again);
    free(run);
}

/* ---- memory ---- */

static int look(struct train *t, void *bytes, struct err *err)
{
    struct mem_info m;
    size_t said;

    if (train_step(t, err) < 0 || exec_bytes(t->exec, t->batch.B, t->batch.T, &said, err) < 0)
        return -1;
    t->dev->ops->info(t->dev, &m);
    assert_int_equal(m.peak[MEM_ACT], said + 64);
    *(size_t *)bytes = said;
    return 0;
}

/* Bytes of the arena of GPT-2's form of 8 blocks, 2 samples of 16 tokens. */
static size_t arena(const char *path, const char *value)
{
    struct settings_rows rows = harness_rows(job, NULL, "train_batch_size", "2", "model.n_layer", "8", path,
                                             value, NULL);
    size_t bytes = 0;
    struct harness_rank r = {.rows = &rows, .body = look, .arg = &bytes};

    harness_run(&r, 1, 1);
    harness_ended_well(&r, 1);
    settings_rows_clear(&rows);
    return bytes;
}

/* A block saves 15 (N, C): both norms, qkv as three, attention, the middle, and the feed-forward before and after its
 * activation as four each; 2 x 2 statistics a token and a number a head. Its output is one more. 8 blocks in segments
 * of k keep what k save, one output a segment, and k - 1 inside one. */
static void the_arena_is_that_of_the_formula(void **state)
{
    enum { N = 2 * 16, C = 32, H = 4, L = 8, OUT = 4 * N * C, SAVED = 4 * (15 * N * C + 4 * N + N * H) };
    static const char *const number[] = {NULL, "1", "2", "3", "4", "5", "6", "7", "8"};
    size_t all = arena("activation_checkpointing.interval", "0");

    for (int k = 1; k <= L; k++) {
        size_t kept = (size_t)(k * SAVED + ((L + k - 1) / k + k - 1) * OUT);

        assert_int_equal(all - arena("activation_checkpointing.interval", number[k]),
                         L * (SAVED + OUT) - kept);
    }
    assert_int_equal(all - arena("activation_checkpointing.number_checkpoints", "3"),
                     (L - 3) * SAVED + (L - 3 - 2) * OUT);
    assert_int_equal(arena("pipeline.activation_checkpoint_interval", "2"),
                     arena("activation_checkpointing.interval", "2"));
    /* norms, attention with its number a head, and the activation of one block only */
    assert_int_equal(all - arena("activation_checkpointing.selective", "true"),
                     (L - 1) * 4 * (7 * N * C + N * H));
}

/* ---- settings ---- */

static void contradictions_are_refused(void **state)
{
    static const char *const bad[][4] = {
        {"interval", "2", "number_checkpoints", "3"},
        {"interval", "2", "selective", "true"},
        {"number_checkpoints", "3", "selective", "true"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *a = xasprintf("activation_checkpointing.%s", bad[i][0]),
             *b = xasprintf("activation_checkpointing.%s", bad[i][2]);
        struct settings_rows rows = harness_rows(job, NULL, a, bad[i][1], b, bad[i][3], NULL);
        struct harness_rank r = harness_alone(&rows, STEPS, NULL);

        assert_int_equal(r.err.code, ERR_INPUT);
        assert_non_null(strstr(r.err.text, a));
        assert_non_null(strstr(r.err.text, b));
        assert_non_null(strstr(r.err.text, "take one of the two out"));
        settings_rows_clear(&rows);
        free(a);
        free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_is_the_same),
        cmocka_unit_test(and_three_in_every_stage),
        cmocka_unit_test(and_with_dawdling_streams),
        cmocka_unit_test(a_resume_may_change_it),
        cmocka_unit_test(the_arena_is_that_of_the_formula),
        cmocka_unit_test(contradictions_are_refused),
    };

    return cmocka_run_group_tests_name("recompute", tests, harness_begin, harness_end);
}
