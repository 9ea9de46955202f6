/* What a run says that it has spent: bytes by operation and group against ENGINE 5's sums by hand, phases that fill the
 * step, memory by class against what was asked for and against what the kernel counts.
 */
#include "tests/sim/train_harness.h"

#include "engine/base/buf.h"
#include "engine/base/hash.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#define RANKS 4
#define STEPS 6
#define LATE_MS 20

/* GPT-2's form of 2 blocks, 32 wide, on bytes in samples of 16: its parameters by hand, as they lie in memory for 2 or
 * 4 ranks, and flats: the tied embedding, positions, two blocks, the norm. */
#define WTE (256 * 32)
#define WPE (16 * 32)
#define BLOCK (12 * 32 * 32 + 13 * 32)
#define NORM (2 * 32)
#define FLATS 5

static const char base[] = "gradient_clipping = 1.0\n"
                           "[zero_optimization]\noverlap_comm = false\nstage3_max_live_parameters = 0\n"
                           "stage3_max_reuse_distance = 0\nstage3_param_persistence_threshold = 0\n"
                           "[model]\nn_layer = 2\nn_head = 4\nn_embd = 32\n"
                           "[data]\nseq_len = 16\nvalid_split = 0.1\n"
                           "[run]\nseed = 5\nthreads = 1\nsteps = 6\neval_samples = 14\n";

struct seen {
    int late;       /* comes to every step so much later, ms */
    int eval_after; /* evaluates after this step; 0: never */
    struct account spent, last[STEPS];
    int64_t step_ns[STEPS];
    struct mem_info mem;
    uint64_t arena, image; /* bytes by other counts */
    double loss, valid;
    uint64_t hash;         /* of the own slices of the masters */
};

static void sleep_ms(int ms)
{
    struct timespec t = {0, ms * 1000000L};

    nanosleep(&t, NULL);
}

static int body(struct train *t, void *arg, struct err *err)
{
    struct seen *r = arg;
    size_t arena = 0;
    double loss;

    for (int i = 0; i < STEPS; i++) {
        sleep_ms(r->late);
        if (train_step(t, err) < 0)
            return -1;
        r->last[i] = t->last;
        r->step_ns[i] = t->step_ns;
        if (i + 1 == r->eval_after && train_eval(t, &loss, err) < 0)
            return -1;
    }
    r->spent = t->spent;
    t->dev->ops->info(t->dev, &r->mem);
    exec_bytes(t->exec, t->setup->job.micro_batch_size, t->setup->job.seq_len, &arena, err);
    r->arena = arena;
    return 0;
}

static void train_on(struct seen *r, int world, int nodes, const struct settings_rows *rows)
{
    struct harness_rank rank[RANKS];

    for (int i = 0; i < world; i++)
        rank[i] = (struct harness_rank){.rows = rows, .body = body, .arg = &r[i]};
    harness_run(rank, world, nodes);
    harness_ended_well(rank, world);
}

static void train(struct seen *r, int world, const struct settings_rows *rows)
{
    train_on(r, world, 1, rows);
}

/* ---- bytes ---- */

static uint64_t padded(uint64_t n, int world)
{
    uint64_t to = 16 * (uint64_t)world;

    return (n + to - 1) / to * to;
}

static void assert_bytes(const struct seen *r, enum train_group group, int op, double sent, double received)
{
    double bytes[2];

    account_bytes(&r->spent, group, op, bytes);
    if (bytes[0] != sent || bytes[1] != received)
        fail_msg("%s %s: %.0f sent and %.0f received in a step, not %.0f and %.0f", group_name[group],
                 coll_name((uint32_t)op), bytes[0], bytes[1], sent, received);
}

/* Two ranks, two micro-batches: half of everything goes over and as much comes back. The loss (3 numbers, of which rank
 * 0 owns 1) and the word to stop (2) ride with the gradients, a row of norms goes from each to the other. The
 * evaluation between the steps is not theirs. */
static void bytes_of_operations(void **state)
{
    double wte = (double)padded(WTE, 2), wpe = (double)padded(WPE, 2), block = (double)padded(BLOCK, 2),
           norm = (double)padded(NORM, 2), p = wte + wpe + 2 * block + norm, control = 24 + 16,
           norms = 8 * (FLATS + 1), gathers = 2 * (2 * wte + wpe + 2 * 2 * block + 2 * norm);
    const double reduced[4] = {4 * p, 0, 0, 0}, scattered[4] = {0, 2 * p, 2 * 2 * p, 2 * 2 * p},
                 gathered[4] = {0, 2 * p + norms, 2 * p + norms, 2 * gathers + norms};

    for (int stage = 0; stage <= 3; stage++) {
        char s[2] = {(char)('0' + stage), 0};
        struct settings_rows rows = harness_rows(base, NULL, "train_batch_size", "8",
                                                 "gradient_accumulation_steps", "2",
                                                 "zero_optimization.stage", s, NULL);
        struct seen r[RANKS] = {{.eval_after = 3}, {.eval_after = 3}};

        train(r, 2, &rows);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(r[k].spent.steps, STEPS);
            for (int op = 0; op < COLL_OPS; op++) {
                double want = op == COLL_ALL_REDUCE       ? reduced[stage] + control
                              : op == COLL_REDUCE_SCATTER ? scattered[stage]
                              : op == COLL_ALL_GATHER     ? gathered[stage]
                                                          : 0;

                assert_bytes(&r[k], GROUP_DATA, op, want, want);
                assert_bytes(&r[k], GROUP_NEAR, op, 0, 0);
            }
        }
        settings_rows_clear(&rows);
    }
}

/* Four ranks in pairs, two micro-batches: the first gathers from all, the second and the backward of both in pairs,
 * where a part is a half. */
static void bytes_of_the_near_group(void **state)
{
    double wte = (double)padded(WTE, 4), wpe = (double)padded(WPE, 4),
           rest = 2 * (double)padded(BLOCK, 4) + (double)padded(NORM, 4), all = wte + wpe + rest,
           gathers = 2 * (2 * wte + wpe + 2 * rest), norms = 3 * 8 * (FLATS + 1);
    struct settings_rows rows = harness_rows(base, NULL, "train_batch_size", "8", "gradient_accumulation_steps",
                                             "2", "zero_optimization.stage", "3",
                                             "zero_optimization.zero_hpz_partition_size", "2", NULL);
    struct seen r[RANKS] = {0};

    train(r, 4, &rows);
    for (int k = 0; k < 4; k++) {
        double data = 4 * all * 3 / 4 + norms, near = 4 * (gathers - all) / 2;

        assert_bytes(&r[k], GROUP_DATA, COLL_ALL_GATHER, data, data);
        assert_bytes(&r[k], GROUP_NEAR, COLL_ALL_GATHER, near, near);
        assert_bytes(&r[k], GROUP_NEAR, COLL_REDUCE_SCATTER, 0, 0);
    }
    settings_rows_clear(&rows);
}

/* ---- time ---- */

static const char *const devices_of[] = {"cpu", "cpu-async"};

static void phases_fill_the_step(void **state)
{
    for (int stage = 0; stage <= 3; stage += 3)
        for (int d = 0; d < 2; d++) {
            char s[2] = {(char)('0' + stage), 0};
            struct settings_rows rows = harness_rows(base, NULL, "train_batch_size", "8",
                                                     "gradient_accumulation_steps", "2",
                                                     "zero_optimization.stage", s,
                                                     "zero_optimization.overlap_comm", d ? "true" : "false",
                                                     NULL);
            struct seen r[RANKS] = {{.eval_after = 3}, {.eval_after = 3}};

            setenv("DS_DEVICE", devices_of[d], 1);
            train(r, 2, &rows);
            unsetenv("DS_DEVICE");
            for (int k = 0; k < 2; k++) {
                double least = INFINITY;

                for (int i = 0; i < STEPS; i++) {
                    double ms[TIMES], sum = 0;

                    account_ms(&r[k].last[i], ms);
                    for (int j = 0; j < STEP_TIMES; j++) {
                        assert_true(ms[j] >= 0);
                        sum += ms[j];
                    }
                    assert_true(fabs(sum - (double)r[k].step_ns[i] * 1e-6) < 1e-6);
                    assert_true(ms[TIME_FORWARD] > 0 && ms[TIME_BACKWARD] > 0 && ms[TIME_UPDATE] > 0);
                    assert_true((ms[TIME_EVAL] > 0) == (i == 3)); /* it was before this step */
                    assert_true((ms[TIME_WAIT] > 0) == (stage == 3));
                    least = fmin(least, ms[TIME_OTHER] / sum);
                }
                assert_true(least < 0.05); /* in a step without a hiccup of the machine */
            }
            settings_rows_clear(&rows);
        }
}

/* Rank 1 comes late to every step: what rank 0 waits is no compute. Stage 0 meets it at the end of the step, stage 3
 * in its first gather, whether the gather is done by the compute stream or beside it. */
static void a_late_peer_is_waited_for(void **state)
{
    static const struct {
        const char *stage, *overlap;
        enum train_time time;
    } c[] = {{"0", "false", TIME_REDUCE}, {"3", "false", TIME_WAIT}, {"3", "true", TIME_WAIT}};

    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct settings_rows rows = harness_rows(base, NULL, "train_batch_size", "2",
                                                 "zero_optimization.stage", c[i].stage,
                                                 "zero_optimization.overlap_comm", c[i].overlap, NULL);
        struct seen r[RANKS] = {0};
        double ms[TIMES];

        r[1].late = LATE_MS;
        train(r, 2, &rows);
        account_ms(&r[0].spent, ms);
        if (ms[c[i].time] < 0.5 * LATE_MS)
            fail_msg("stage %s, overlap %s: %s has %.3f ms", c[i].stage, c[i].overlap, time_name[c[i].time],
                     ms[c[i].time]);
        settings_rows_clear(&rows);
    }
}

/* ---- memory ---- */

/* Ranks of one process read each other in place: seats in less than 64 KiB. Two nodes of one rank: four buffers of 512
 * KiB each way along the nodes, and one for what is exchanged. The arena has its 64 bytes to align. */
static void memory_by_class(void **state)
{
    for (int nodes = 1; nodes <= 2; nodes++) {
        struct settings_rows rows = harness_rows(base, NULL, "train_batch_size", "8", NULL);
        struct seen r[RANKS] = {0};
        uint64_t buffers = nodes == 2 ? 9 * 524288 : 0;

        train_on(r, 2, nodes, &rows);
        for (int k = 0; k < 2; k++) {
            const struct mem_info *m = &r[k].mem;

            assert_true(m->now[MEM_COMM] > buffers && m->now[MEM_COMM] < buffers + 65536);
            assert_int_equal(m->peak[MEM_COMM], m->now[MEM_COMM]);
            assert_int_equal(m->now[MEM_ACT], r[k].arena + 64);
            assert_int_equal(m->now[MEM_SNAPSHOT], 0);
        }
        settings_rows_clear(&rows);
    }
}

/* A run with checkpoints, as ds-rank does it. */
static int whole_run(struct train *t, void *arg, struct err *err)
{
    struct seen *r = arg;
    const struct param_table *pt = t->setup->table;

    if (train_run(t, err) < 0)
        return -1;
    r->spent = t->spent;
    t->dev->ops->info(t->dev, &r->mem);
    r->image = 12 * pt->numel / (uint64_t)pt->ranks;
    r->loss = t->loss;
    r->valid = t->valid_loss;
    for (int f = 0; f < pt->nflats; f++)
        r->hash = r->hash * 31 + hash64(zero_slice(t->zero, ZERO_W, f, t->comm->rank),
                                        pt->flat[f].slice * sizeof(float));
    return 0;
}

static void run_whole(struct seen *r, const char *name, const char *breakdown)
{
    char *dir = xasprintf("%s/%s", harness_dir, name);
    struct settings_rows rows = harness_rows(base, NULL, "train_batch_size", "8", "run.dir", dir, "run.save_every",
                                             "2", "run.eval_every", "3", "zero_optimization.stage", "1",
                                             "wall_clock_breakdown", breakdown, "memory_breakdown", breakdown,
                                             NULL);
    struct harness_rank rank[2];

    for (int i = 0; i < 2; i++)
        rank[i] = (struct harness_rank){.rows = &rows, .body = whole_run, .arg = &r[i]};
    harness_run(rank, 2, 1);
    harness_ended_well(rank, 2);
    settings_rows_clear(&rows);
    free(dir);
}

/* The image of a checkpoint: weight and two moments, a half of everything, and the file's head. */
static void checkpoints_take_memory_and_time(void **state)
{
    struct seen r[2] = {0};

    run_whole(r, "image", "true");
    for (int k = 0; k < 2; k++) {
        assert_true(r[k].mem.peak[MEM_SNAPSHOT] > r[k].image * 9 / 10);
        assert_true(r[k].mem.peak[MEM_SNAPSHOT] < r[k].image * 11 / 10 + 65536);
        assert_true(r[k].spent.ns[PHASE_SAVE] > 0 && r[k].spent.ns[PHASE_EVAL] > 0);
    }
}

/* ---- what the kernel counts ---- */

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SHADOWED 1 /* a sanitizer's memory comes on top */
#else
#define SHADOWED 0
#endif

static double resident(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    double kb = 0;
    char line[256];

    while (fgets(line, sizeof line, f))
        sscanf(line, "VmRSS: %lf kB", &kb);
    fclose(f);
    return kb * 1024;
}

struct weighed {
    pthread_barrier_t *all;
    double resident, account;
};

/* After a step with everything in it, all ranks at once. */
static int weigh(struct train *t, void *arg, struct err *err)
{
    struct weighed *w = arg;
    struct mem_info m;
    double loss;

    if (train_step(t, err) < 0 || train_eval(t, &loss, err) < 0)
        return -1;
    t->dev->ops->info(t->dev, &m);
    for (int c = 0; c < MEM_CLASSES; c++)
        w->account += (double)m.now[c];
    pthread_barrier_wait(w->all);
    w->resident = resident();
    pthread_barrier_wait(w->all);
    return 0;
}

/* 38 million parameters on two ranks, in stage 3 63: what the process has grown by is what the ranks account for,
 * within 10 %. */
static void resident_is_the_account(void **state)
{
    if (SHADOWED)
        skip();
    for (int stage = 0; stage <= 3; stage += 3) {
        char s[2] = {(char)('0' + stage), 0};
        struct settings_rows rows =
            harness_rows(base, NULL, "train_batch_size", "2", "model.n_layer", stage ? "5" : "3", "model.n_embd",
                         "1024", "model.n_head", "16", "run.eval_samples", "2", "zero_optimization.stage", s, NULL);
        pthread_barrier_t all;
        struct weighed w[2];
        struct harness_rank rank[2];
        double before = resident(), account, grown;

        pthread_barrier_init(&all, NULL, 2);
        for (int i = 0; i < 2; i++) {
            w[i] = (struct weighed){.all = &all};
            rank[i] = (struct harness_rank){.rows = &rows, .body = weigh, .arg = &w[i]};
        }
        harness_run(rank, 2, 1);
        harness_ended_well(rank, 2);
        account = w[0].account + w[1].account;
        grown = w[0].resident - before;
        print_message("stage %d: account %.3f GB, grown %.3f GB\n", stage, account * 1e-9, grown * 1e-9);
        assert_true(account > 1e9);
        assert_true(fabs(grown - account) <= 0.1 * account);
        pthread_barrier_destroy(&all);
        settings_rows_clear(&rows);
    }
}

/* Law a, for the breakdown. */
static void a_breakdown_changes_nothing(void **state)
{
    struct seen with[2] = {0}, without[2] = {0};

    run_whole(with, "with", "true");
    run_whole(without, "without", "false");
    for (int k = 0; k < 2; k++) {
        assert_true(with[k].loss == without[k].loss && with[k].valid == without[k].valid);
        assert_true(with[k].hash == without[k].hash);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_operations),       cmocka_unit_test(bytes_of_the_near_group),
        cmocka_unit_test(phases_fill_the_step),      cmocka_unit_test(a_late_peer_is_waited_for),
        cmocka_unit_test(memory_by_class),           cmocka_unit_test(checkpoints_take_memory_and_time),
        cmocka_unit_test(a_breakdown_changes_nothing), cmocka_unit_test(resident_is_the_account),
    };

    return cmocka_run_group_tests_name("account", tests, harness_begin, harness_end);
}
