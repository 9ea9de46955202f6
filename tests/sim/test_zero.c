/* ZeRO's laws with N ranks in one process: what each stage sends and holds, that checkpoints go from any stage to
 * any other, and that streams that dawdle change nothing. That the stages compute the same is in test_train.c.
 */
#include "tests/sim/train_harness.h"
#include "engine/zero/zero_impl.h"

#include "engine/base/buf.h"

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

#define RANKS 7
#define STEPS 8

/* GPT-2's form of 2 blocks, 32 wide, on bytes in samples of 16: its parameters by hand. */
#define WTE (256 * 32)
#define WPE (16 * 32)
#define BLOCK (12 * 32 * 32 + 13 * 32)
#define NORM (2 * 32)

static const char base[] = "gradient_clipping = 1.0\n"
                           "[optimizer.params]\nlr = 3e-3\nweight_decay = 0.1\n"
                           "[zero_optimization]\noverlap_comm = false\n"
                           "[model]\nn_layer = 2\nn_head = 4\nn_embd = 32\n"
                           "[data]\nseq_len = 16\nvalid_split = 0.1\n"
                           "[run]\nseed = 5\nthreads = 1\nsteps = 100\neval_samples = 14\n";
static const char strict[] = "[zero_optimization]\nstage3_max_live_parameters = 0\n"
                             "stage3_max_reuse_distance = 0\nstage3_param_persistence_threshold = 0\n";

/* What a rank brings out of a run. */
struct seen {
    pthread_barrier_t *all;
    int64_t from, to; /* steps: those from `from` on are measured */
    double loss[STEPS];
    struct comm_counters before, after;
    struct mem_info mem;
    uint64_t wire;                 /* bytes that the kernel sent for the whole process meanwhile */
    uint64_t said[MEM_CLASSES], sends[CLASSES]; /* of the start table */
    double numel;
    float *master;                 /* own slices */
    uint64_t n;
};

/* What the kernel has sent over this process's TCP connections. */
static uint64_t kernel_sent(void)
{
    DIR *d = opendir("/proc/self/fd");
    uint64_t sum = 0;

    for (struct dirent *e; (e = readdir(d));) {
        struct tcp_info info = {0};
        socklen_t n = sizeof info;

        if (getsockopt(atoi(e->d_name), IPPROTO_TCP, TCP_INFO, &info, &n) == 0)
            sum += info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
    }
    closedir(d);
    return sum;
}

/* All ranks at once, so that nothing is under way. */
static void measure(struct seen *r, struct train *t, struct comm_counters *c)
{
    pthread_barrier_wait(r->all);
    zero_counters(t->zero, c);
    r->wire = kernel_sent() - r->wire;
    pthread_barrier_wait(r->all);
}

static void keep(struct seen *r, struct train *t)
{
    const struct param_table *pt = t->setup->table;

    t->dev->ops->info(t->dev, &r->mem);
    zero_bytes(pt, t->setup->order, &t->setup->job, t->setup->dtype, r->said);
    zero_traffic(pt, t->setup->order, &t->setup->job, t->setup->dtype, r->sends);
    r->numel = (double)pt->numel;
    r->master = xcalloc(pt->total + 1, sizeof *r->master);
    for (int f = 0; f < pt->nflats; f++) {
        memcpy(r->master + r->n, zero_slice(t->zero, ZERO_W, f, t->comm->rank),
               pt->flat[f].slice * sizeof *r->master);
        r->n += pt->flat[f].slice;
    }
}

static int body(struct train *t, void *arg, struct err *err)
{
    struct seen *r = arg;

    while (t->step < r->to) {
        if (t->step == r->from)
            measure(r, t, &r->before);
        if (train_step(t, err) < 0)
            return -1;
        r->loss[t->step - 1] = t->loss;
    }
    measure(r, t, &r->after);
    keep(r, t);
    if (t->setup->job.run_dir && train_save(t, err) < 0)
        return -1;
    for (int64_t step; t->writer && ckpt_poll(t->writer, 1, &step, err) > 0;)
        ;
    return 0;
}

static void train(struct seen *r, int world, int nodes, int64_t from, int64_t to,
                  const struct settings_rows *rows)
{
    struct harness_rank rank[RANKS];
    pthread_barrier_t all;

    pthread_barrier_init(&all, NULL, (unsigned)world);
    for (int i = 0; i < world; i++) {
        r[i] = (struct seen){.all = &all, .from = from, .to = to};
        rank[i] = (struct harness_rank){.rows = rows, .body = body, .arg = &r[i]};
    }
    harness_run(rank, world, nodes);
    harness_ended_well(rank, world);
    pthread_barrier_destroy(&all);
}

static void clear(struct seen *r, int world)
{
    for (int i = 0; i < world; i++)
        free(r[i].master);
}

/* ---- bytes on the wire ---- */

static uint64_t sent(const struct seen *r, enum coll_class class)
{
    uint64_t sum = 0;

    for (int op = 0; op < COLL_OPS; op++)
        sum += r->after.sent[op][class] - r->before.sent[op][class];
    return sum;
}

static uint64_t padded(uint64_t n, int world)
{
    uint64_t to = 16 * (uint64_t)world;

    return (n + to - 1) / to * to;
}

/* Elements of gradients and of weights that a rank sends in one step, times N / (N - 1): ENGINE 5. The tied
 * embedding is read by the first and by the last layer, which is kept from its forward to its backward; the
 * first layer's backward reads nothing. */
static void formula(int stage, int world, uint64_t k, uint64_t *grad, uint64_t *param)
{
    uint64_t wte = padded(WTE, world), wpe = padded(WPE, world), block = padded(BLOCK, world),
             norm = padded(NORM, world), p = wte + wpe + 2 * block + norm;

    *grad = stage >= 2 ? k * p : p;
    *param = stage == 3 ? k * (2 * wte + wpe + 2 * 2 * block + 2 * norm) : p;
}

static void bytes_are_those_of_the_formula(void **state)
{
    static const int world[] = {1, 2, 3, 4, 7};
    struct seen r[RANKS];

    for (int i = 0; i < 5; i++)
        for (int stage = 0; stage <= 3; stage++)
            for (int k = 1; k <= 3; k += 2) {
                char s[2] = {(char)('0' + stage), 0}, a[2] = {(char)('0' + k), 0};
                const char *bf16 = stage % 2 ? "true" : "false"; /* 16-bit weights beside fp32 gradients */
                struct settings_rows rows = harness_rows(base, strict, "train_batch_size", "252",
                                                         "gradient_accumulation_steps", a,
                                                         "zero_optimization.stage", s, "bf16.enabled", bf16,
                                                         NULL);
                uint64_t grad, param, n = (uint64_t)world[i], size = stage == 1 || stage == 3 ? 2 : 4;

                train(r, world[i], 1, 2, 4, &rows);
                formula(stage, world[i], (uint64_t)k, &grad, &param);
                for (int j = 0; j < world[i]; j++) { /* stage 0 gathers what it has reduced, in one call */
                    uint64_t g = 2 * 4 * (n - 1) * grad / n, p = 2 * size * (n - 1) * param / n;

                    assert_int_equal(sent(&r[j], CLASS_GRAD), stage ? g : g + p);
                    assert_int_equal(sent(&r[j], CLASS_PARAM), stage ? p : 0);
                }
                clear(r, world[i]);
                settings_rows_clear(&rows);
            }
}

/* With DeepSpeed's limits, and others, the start table says what is sent. */
static void the_start_table_counts_the_same(void **state)
{
    static const struct {
        const char *live, *reuse, *persist, *prefetch, *overlap, *layers, *interval;
    } c[] = {{"1e9", "1e9", "1e5", "5e7", "true", "2", "0"}, {"1e9", "1e9", "0", "5e7", "false", "2", "0"},
             {"3e4", "1e9", "0", "2e4", "true", "2", "1"},   {"1e9", "1e4", "0", "0", "false", "2", "1"},
             {"2e4", "2e4", "600", "5e7", "true", "2", "0"}, {"3e4", "1e9", "0", "2e4", "true", "5", "2"},
             {"1e9", "1e4", "0", "5e7", "true", "5", "3"},   {"2e4", "2e4", "600", "0", "false", "7", "3"}};
    uint64_t grad, param, least = UINT64_MAX;

    formula(3, 4, 3, &grad, &param);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct settings_rows rows = harness_rows(base, NULL, "train_batch_size", "24",
                                                 "gradient_accumulation_steps", "3",
                                                 "zero_optimization.stage", "3",
                                                 "zero_optimization.stage3_max_live_parameters", c[i].live,
                                                 "zero_optimization.stage3_max_reuse_distance", c[i].reuse,
                                                 "zero_optimization.stage3_param_persistence_threshold",
                                                 c[i].persist,
                                                 "zero_optimization.stage3_prefetch_bucket_size",
                                                 c[i].prefetch, "zero_optimization.overlap_comm",
                                                 c[i].overlap, "model.n_layer", c[i].layers,
                                                 "activation_checkpointing.interval", c[i].interval, NULL);
        struct seen r[RANKS];

        train(r, 4, 1, 2, 4, &rows);
        for (int j = 0; j < 4; j++) {
            assert_int_equal(sent(&r[j], CLASS_PARAM), 2 * r[j].sends[CLASS_PARAM]);
            assert_int_equal(sent(&r[j], CLASS_GRAD), 2 * r[j].sends[CLASS_GRAD]);
            assert_int_equal(r[j].mem.peak[MEM_BUFFER], r[j].said[MEM_BUFFER]);
        }
        if (strcmp(c[i].layers, "2")) {
            clear(r, 4);
            settings_rows_clear(&rows);
            continue;
        }
        assert_true(r[0].sends[CLASS_PARAM] < 4 * 3 * param / 4); /* less than with nothing kept */
        least = r[0].sends[CLASS_PARAM] < least ? r[0].sends[CLASS_PARAM] : least;
        clear(r, 4);
        settings_rows_clear(&rows);
    }
    formula(2, 4, 1, &grad, &param);
    assert_int_equal(least, 4 * 3 * param / 4); /* nothing is released: each weight once a step */
}

/* With nothing kept, by hand: layers that run forward again within their backward are gathered no more often, the
 * others of a segment once more. 5 blocks in segments of 1, 2 and 3: none, 2 (of two segments' two blocks the first)
 * and 2 (of the first segment's three the first two) more; the last segment does not run again. */
static void recomputed_layers_are_gathered_again(void **state)
{
    static const char *const interval[] = {"0", "1", "2", "3", "5"};
    static const uint64_t more[] = {0, 0, 2, 2, 0};

    for (int i = 0; i < 5; i++)
        for (int k = 1; k <= 2; k++) {
            struct settings_rows rows = harness_rows(base, strict, "train_batch_size", "12", "model.n_layer", "5",
                                                     "gradient_accumulation_steps", k == 1 ? "1" : "2",
                                                     "zero_optimization.stage", "3",
                                                     "activation_checkpointing.interval", interval[i], NULL);
            uint64_t param = 2 * padded(WTE, 3) + padded(WPE, 3) + (2 * 5 + more[i]) * padded(BLOCK, 3) +
                             2 * padded(NORM, 3), grad = padded(WTE, 3) + padded(WPE, 3) + 5 * padded(BLOCK, 3) +
                             padded(NORM, 3);
            struct seen r[RANKS];

            train(r, 3, 1, 2, 4, &rows);
            for (int j = 0; j < 3; j++) {
                assert_int_equal(sent(&r[j], CLASS_PARAM), 2 * 4 * (uint64_t)k * param * 2 / 3);
                assert_int_equal(sent(&r[j], CLASS_PARAM), 2 * r[j].sends[CLASS_PARAM]);
                assert_int_equal(sent(&r[j], CLASS_GRAD), 2 * 4 * (uint64_t)k * grad * 2 / 3);
                assert_int_equal(r[j].mem.peak[MEM_BUFFER], r[j].said[MEM_BUFFER]);
            }
            clear(r, 3);
            settings_rows_clear(&rows);
        }
}

/* Near ranks gather from all the first time in a step and then from each other: by hand for 4 ranks in pairs and
 * 3 micro-batches. A part of a pair's second copy is a half. The losses are those without. */
static void near_ranks_gather_among_themselves(void **state)
{
    uint64_t wte = padded(WTE, 4), wpe = padded(WPE, 4), rest = 2 * padded(BLOCK, 4) + padded(NORM, 4),
             first = wte + wpe + rest, gathers = 3 * (2 * wte + wpe + 2 * rest);

    for (int overlap = 0; overlap <= 1; overlap++) {
        struct seen r[2][RANKS];
        struct settings_rows rows[2];

        for (int near = 0; near <= 1; near++) {
            rows[near] = harness_rows(base, strict, "train_batch_size", "24", "gradient_accumulation_steps",
                                      "3", "zero_optimization.stage", "3", "zero_optimization.overlap_comm",
                                      overlap ? "true" : "false", "zero_optimization.zero_hpz_partition_size",
                                      near ? "2" : "1", NULL);
            if (overlap && near)
                setenv("DS_DEVICE", "cpu-async", 1);
            train(r[near], 4, 1, 2, 4, &rows[near]);
            unsetenv("DS_DEVICE");
        }
        for (int k = 0; k < 4; k++) {
            assert_int_equal(sent(&r[1][k], CLASS_PARAM), 2 * 4 * (first * 3 / 4 + (gathers - first) / 2));
            assert_int_equal(sent(&r[1][k], CLASS_PARAM), 2 * r[1][k].sends[CLASS_PARAM]);
            assert_int_equal(r[1][k].mem.peak[MEM_BUFFER], r[0][k].mem.peak[MEM_BUFFER] + 4 * first / 2);
            assert_int_equal(r[1][k].mem.peak[MEM_BUFFER], r[1][k].said[MEM_BUFFER]);
            assert_memory_equal(r[0][k].loss, r[1][k].loss, sizeof r[0][k].loss);
            assert_memory_equal(r[0][k].master, r[1][k].master, r[0][k].n * sizeof(float));
        }
        for (int near = 0; near <= 1; near++) {
            clear(r[near], 4);
            settings_rows_clear(&rows[near]);
        }
    }
}

/* A second count, the kernel's, for two ranks that speak TCP: all payload, and little beside it. */
static void the_kernel_counts_the_same(void **state)
{
    for (int stage = 0; stage <= 3; stage++) {
        char s[2] = {(char)('0' + stage), 0};
        struct settings_rows rows = harness_rows(base, strict, "train_batch_size", "12",
                                                 "gradient_accumulation_steps", "3",
                                                 "zero_optimization.stage", s, NULL);
        struct seen r[RANKS];
        uint64_t ours = 0;

        train(r, 2, 2, 2, 6, &rows);
        for (int j = 0; j < 2; j++)
            for (int class = 0; class < CLASSES; class++)
                ours += sent(&r[j], (enum coll_class)class);
        assert_true(ours > 1000000);
        if (r[0].wire < ours || r[0].wire > ours + ours / 50)
            fail_msg("stage %d: the kernel sent %llu bytes, we count %llu", stage,
                     (unsigned long long)r[0].wire, (unsigned long long)ours);
        clear(r, 2);
        settings_rows_clear(&rows);
    }
}

/* ---- memory ---- */

/* ENGINE 3: bytes a parameter of weights, gradients and optimizer, to 1 %; buffers as the start table says. */
static void memory_is_that_of_the_formula(void **state)
{
    struct seen r[RANKS];

    for (int stage = 0; stage <= 3; stage++)
        for (int world = 1; world <= 4; world++)
            for (int bf16 = 0; bf16 <= 1; bf16++) {
                char s[2] = {(char)('0' + stage), 0};
                struct settings_rows rows = harness_rows(base, strict, "train_micro_batch_size_per_gpu", "1",
                                                         "gradient_accumulation_steps", "1",
                                                         "zero_optimization.stage", s, "bf16.enabled", bf16 ?
                                                         "true" : "false", "model.n_embd", "128",
                                                         "zero_optimization.overlap_comm", world % 2 ? "true"
                                                         : "false", NULL);
                double w = bf16 ? 2 : 4, optim = bf16 ? 12 : 8, n = world;
                double want[3] = {stage == 3 ? w / n : w, stage >= 2 ? 4 / n : 4,
                                  stage >= 1 ? optim / n : optim};

                train(r, world, 1, 2, 3, &rows);
                for (int c = MEM_PARAM; c <= MEM_OPTIM; c++) {
                    double have = (double)r[0].mem.peak[c] / r[0].numel / want[c];

                    if (have < 1 || have > 1.01)
                        fail_msg("stage %d, %d ranks, %s: %.4f of the formula", stage, world,
                                 mem_class_name[c], have);
                    assert_int_equal(r[0].mem.peak[c], r[0].said[c]);
                }
                assert_int_equal(r[0].mem.peak[MEM_BUFFER], r[0].said[MEM_BUFFER]);
                clear(r, world);
                settings_rows_clear(&rows);
            }
}

/* Without overlap and with nothing kept: a layer's weights and its gradients, each size once; the tied embedding's
 * gradient stays from the last layer's backward to the first's. */
static void buffers_by_hand(void **state)
{
    uint64_t all = padded(WTE, 3) + padded(WPE, 3) + padded(BLOCK, 3) + padded(NORM, 3);
    struct seen r[RANKS];

    for (int stage = 2; stage <= 3; stage++) {
        struct settings_rows rows = harness_rows(base, strict, "train_batch_size", "6",
                                                 "gradient_accumulation_steps", "2",
                                                 "zero_optimization.stage", stage == 2 ? "2" : "3", NULL);

        train(r, 3, 1, 2, 3, &rows);
        assert_int_equal(r[0].mem.peak[MEM_BUFFER], 4 * all * (stage == 3 ? 2 : 1));
        clear(r, 3);
        settings_rows_clear(&rows);
    }
}

/* ---- checkpoints ---- */

/* Saved in one stage on 3 ranks, gone on with in every stage on 1 to 4: as if it had been one run. */
static void checkpoints_go_from_stage_to_stage(void **state)
{
    struct seen r[RANKS], whole[RANKS];
    struct settings_rows plain = harness_rows(base, strict, "train_batch_size", "12", NULL);

    train(whole, 3, 1, 0, STEPS, &plain);
    for (int from = 0; from <= 3; from++) {
        char *run = xasprintf("%s/stage-%d", harness_dir, from), f[2] = {(char)('0' + from), 0};
        struct settings_rows save = harness_rows(base, strict, "train_batch_size", "12",
                                                 "zero_optimization.stage", f, "run.dir", run, NULL);

        train(r, 3, 1, 0, 4, &save);
        clear(r, 3);
        for (int to = 0; to <= 3; to++) {
            char t[2] = {(char)('0' + to), 0};
            int world = 1 + (from + to) % 4;
            struct settings_rows again = harness_rows(base, strict, "train_batch_size", "12",
                                                      "zero_optimization.stage", t, "run.resume", run, NULL);

            train(r, world, 1, 4, STEPS, &again);
            for (int i = 4; i < STEPS; i++)
                assert_true(fabs(r[0].loss[i] - whole[0].loss[i]) <=
                            (world == 3 ? 0 : 1e-5) * whole[0].loss[i]);
            clear(r, world);
            settings_rows_clear(&again);
        }
        settings_rows_clear(&save);
        free(run);
    }
    clear(whole, 3);
    settings_rows_clear(&plain);
}

/* ---- streams ---- */

static const struct {
    const char *stage, *live, *persist, *prefetch;
} streams[] = {{"2", "0", "0", "0"},
               {"3", "0", "0", "0"},
               {"3", "3e4", "0", "2e4"},
               {"3", "1e9", "100", "5e7"}};

/* ENGINE 6: every stream a thread with random delays, collectives beside the layers: the same bits. */
static void dawdling_streams_change_nothing(void **state)
{
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        struct settings_rows rows[2];
        struct seen r[2][RANKS];

        for (int j = 0; j < 2; j++) {
            rows[j] = harness_rows(base, strict, "train_batch_size", "18", "gradient_accumulation_steps", "3",
                                   "zero_optimization.stage", streams[i].stage,
                                   "zero_optimization.stage3_max_live_parameters", streams[i].live,
                                   "zero_optimization.stage3_max_reuse_distance", streams[i].live,
                                   "zero_optimization.stage3_param_persistence_threshold", streams[i].persist,
                                   "zero_optimization.stage3_prefetch_bucket_size", streams[i].prefetch,
                                   "zero_optimization.overlap_comm", j ? "true" : "false", NULL);
            if (j)
                setenv("DS_DEVICE", "cpu-async", 1);
            train(r[j], 3, 1, 0, 4, &rows[j]);
            unsetenv("DS_DEVICE");
        }
        for (int k = 0; k < 3; k++) {
            assert_memory_equal(r[0][k].loss, r[1][k].loss, sizeof r[0][k].loss);
            assert_int_equal(r[0][k].n, r[1][k].n);
            assert_memory_equal(r[0][k].master, r[1][k].master, r[0][k].n * sizeof(float));
        }
        for (int j = 0; j < 2; j++) {
            clear(r[j], 3);
            settings_rows_clear(&rows[j]);
        }
    }
}

/* ---- optimizers ---- */

/* One micro-batch: what stage 1 gives, stages 2 and 3 give to the bit. */
static void every_optimizer_in_every_stage(void **state)
{
    static const char *const type[] = {"AdamW", "Lion", "Adagrad", "SGD", "Lamb"};

    for (int o = 0; o < 5; o++) {
        struct seen r[2][RANKS];

        for (int stage = 0; stage <= 3; stage++) {
            char s[2] = {(char)('0' + stage), 0};
            struct settings_rows rows = harness_rows(base, strict, "train_batch_size", "12", "optimizer.type",
                                                     type[o], "zero_optimization.stage", s, NULL);

            train(r[stage > 0], 3, 1, 0, 5, &rows);
            for (int k = 0; k < 3 && stage > 0; k++)
                assert_memory_equal(r[0][k].master, r[1][k].master, r[0][k].n * sizeof(float));
            if (stage > 0)
                clear(r[1], 3);
            settings_rows_clear(&rows);
        }
        clear(r[0], 3);
    }
}

/* ---- the end ---- */

struct leaver {
    struct boot_world *world;
    int leaves;
};

static int leave(struct train *t, void *arg, struct err *err)
{
    const struct leaver *l = arg;
    int rc = 0;

    while (!rc && !(l->leaves && t->step == 2))
        rc = train_step(t, err);
    if (l->leaves)
        boot_world_abort(l->world);
    return rc;
}

/* A rank leaves between two steps and the agents say so: the others end, with work under way on two streams. */
static void a_rank_that_leaves_ends_all(void **state)
{
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        struct settings_rows rows = harness_rows(base, strict, "train_batch_size", "9",
                                                 "zero_optimization.stage", streams[i].stage,
                                                 "zero_optimization.stage3_max_live_parameters",
                                                 streams[i].live, "zero_optimization.overlap_comm", "true",
                                                 NULL);
        struct boot_world *w = boot_world_create(3, 1);
        struct leaver l[3];
        struct harness_rank rank[3];

        for (int k = 0; k < 3; k++) {
            l[k] = (struct leaver){w, k == 1};
            rank[k] = (struct harness_rank){.rows = &rows, .body = leave, .arg = &l[k]};
        }
        harness_run_in(w, rank, 3);
        assert_int_equal(rank[1].rc, 0);
        for (int k = 0; k < 3; k += 2)
            assert_int_equal(rank[k].err.code, ERR_RANK_ABORT);
        boot_world_destroy(w);
        settings_rows_clear(&rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_formula),
        cmocka_unit_test(the_start_table_counts_the_same),
        cmocka_unit_test(recomputed_layers_are_gathered_again),
        cmocka_unit_test(near_ranks_gather_among_themselves),
        cmocka_unit_test(the_kernel_counts_the_same),
        cmocka_unit_test(memory_is_that_of_the_formula),
        cmocka_unit_test(buffers_by_hand),
        cmocka_unit_test(checkpoints_go_from_stage_to_stage),
        cmocka_unit_test(dawdling_streams_change_nothing),
        cmocka_unit_test(every_optimizer_in_every_stage),
        cmocka_unit_test(a_rank_that_leaves_ends_all),
    };

    return cmocka_run_group_tests_name("zero", tests, harness_begin, harness_end);
}
