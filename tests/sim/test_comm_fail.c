/* What a group does when something is wrong: calls that do not match, dead ranks, aborts,
 * deadlines, strangers; and what it counts. */
#include "tests/sim/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const int two_nodes[] = {0, 1}, two_by_two[] = {0, 0, 1, 1};

static void pause_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&t, NULL);
}

static void check(struct world_run *w, int ok, const char *what)
{
    if (ok)
        return;
    for (int r = 0; r < w->n; r++)
        print_message("# %s: rank %d: rc %d: %s | lost: %s\n", what, r, w->rc[r], w->why[r],
                      w->lost[r]);
    fail();
}

/* Runs op and puts "CODE TEXT" in why. Always 0. */
static int tell(struct comm *c, const struct coll *op, char why[1024])
{
    struct err err = ERR_INIT;

    comm_run(c, op, &err);
    snprintf(why, 1024, "%d %.900s", (int)err.code, err.text);
    return 0;
}

static int has_code(const struct world_run *w, int rank, enum err_code code)
{
    return w->rc[rank] == 0 && atoi(w->why[rank]) == (int)code;
}

/* --- calls that do not match --- */

static int other_op(struct comm *c, struct boot *boot, void *arg, char why[1024])
{
    static float x[64];
    struct coll op = {.op = COLL_ALL_REDUCE, .send = x, .recv = x, .count = 12, .dtype = DS_F32};

    if (tell(c, &(struct coll){.op = COLL_BARRIER}, why) || atoi(why))
        return -1;
    if (c->rank == c->size - 1)
        op =
            (struct coll){.op = COLL_ALL_GATHER, .send = x, .recv = x, .count = 3, .dtype = DS_F32};
    return tell(c, &op, why);
}

static int other_count(struct comm *c, struct boot *boot, void *arg, char why[1024])
{
    static float x[64];

    return tell(c,
                &(struct coll){.op = COLL_ALL_REDUCE,
                               .send = x,
                               .recv = x,
                               .dtype = DS_F32,
                               .count = c->rank == 0 ? 11 : 22},
                why);
}

static int other_transfer(struct comm *c, struct boot *boot, void *arg, char why[1024])
{
    static float x[64];

    return tell(c,
                &(struct coll){.op = c->rank ? COLL_RECV : COLL_SEND,
                               .send = x,
                               .recv = x,
                               .dtype = DS_F32,
                               .count = c->rank ? 11 : 22,
                               .root = !c->rank},
                why);
}

static void named(struct world_run w, const char *a, const char *b, int everyone)
{
    world_run(&w, 1);
    for (int r = 0; r < w.n; r++) {
        int text = strstr(w.why[r], a) && strstr(w.why[r], b);

        if (everyone || r == 0 || r == w.n - 1)
            check(&w, has_code(&w, r, ERR_JOB_INTERNAL) && text, "both calls are named");
        else
            check(&w, w.rc[r] == 0 && atoi(w.why[r]) != 0, "the others fail as well");
    }
}

static void mismatches_are_named_on_both_sides(void **state)
{
    struct world_run t = {.ops = &comm_thread, .n = 3, .as_threads = 1, .timeout_ms = 30000};
    struct world_run h = {.ops = &comm_host, .n = 3, .timeout_ms = 30000};
    struct world_run n = {.ops = &comm_host, .n = 2, .node_of = two_nodes, .timeout_ms = 30000};

    t.fn = h.fn = n.fn = other_op;
    named(t, "all_reduce(12 f32", "all_gather(", 1);
    named(h, "all_reduce(12 f32", "all_gather(", 1);
    named(n, "all_reduce(12 f32", "all_gather(", 1);
    t.fn = h.fn = n.fn = other_count;
    named(t, "all_reduce(11 f32", "all_reduce(22 f32", 1);
    named(h, "all_reduce(11 f32", "all_reduce(22 f32", 1);
    named(n, "all_reduce(11 f32", "all_reduce(22 f32", 1);
    t.fn = h.fn = other_transfer;
    t.n = h.n = 2;
    named(t, "recv(11 f32)", "send(22 f32)", 1);
    named(h, "recv(11 f32)", "send(22 f32)", 1);
}

static int wrong_calls(struct comm *c, struct boot *boot, void *arg, char why[1024])
{
    static float x[8];
    struct coll wrong[] = {
        {.op = COLL_SEND, .send = x, .count = 1, .root = c->rank},
        {.op = COLL_SEND, .send = x, .count = 1, .root = c->size},
        {.op = COLL_BROADCAST, .recv = x, .count = 1, .root = -1},
        {.op = COLL_ALL_REDUCE, .send = x, .recv = x, .count = -1},
        {.op = COLL_ALL_REDUCE, .send = NULL, .recv = x, .count = 1},
        {.op = COLL_ALL_REDUCE, .send = x, .recv = NULL, .count = 1},
        {.op = COLL_ALL_REDUCE, .send = x, .recv = x, .count = 1, .dtype = DS_I32},
        {.op = COLL_OPS, .send = x, .recv = x, .count = 1},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err err = ERR_INIT;

        if (comm_run(c, &wrong[i], &err) == 0 || err.code != ERR_JOB_INTERNAL) {
            snprintf(why, 1024, "wrong call %zu was taken", i);
            return -1;
        }
    }
    tell(c, &(struct coll){.op = COLL_BARRIER}, why); /* and nothing is broken */
    return atoi(why);
}

static void wrong_calls_are_refused(void **state)
{
    struct world_run w = {
        .ops = &comm_thread, .n = 2, .as_threads = 1, .timeout_ms = 30000, .fn = wrong_calls};

    check(&w, world_run(&w, 0) == 0, "wrong calls");
}

/* --- dead ranks --- */

#define BIG 3000000

/* The last rank dies before, or (arg) in the middle of, the third all-reduce; where that one still succeeds for
 * the others a later one does not. */
static int dies(struct comm *c, struct boot *boot, void *arg, char why[1024])
{
    float *x = calloc(BIG, sizeof *x);
    struct coll op = {.op = COLL_ALL_REDUCE, .send = x, .recv = x, .count = BIG, .dtype = DS_F32};

    for (int i = 0; i < 9; i++) {
        if (i == 2 && c->rank == c->size - 1) {
            if (arg) { /* one of several operations is under way when the process goes */
                struct err err = ERR_INIT;

                c->ops->submit(c, &op, 1, c->device->ops->stream(c->device, STREAM_COMM), &err);
                pause_ms(1);
            }
            raise(SIGKILL);
        }
        tell(c, &op, why);
        if (atoi(why))
            break;
    }
    free(x);
    return atoi(why) ? 0 : -1;
}

static void a_dead_rank_ends_the_others(void **state)
{
    static const struct {
        int n;
        const int *node_of;
    } world[] = {{2, NULL}, {4, NULL}, {2, two_nodes}, {4, two_by_two}};

    for (int i = 0; i < 4; i++)
        for (int agent = 0; agent < 2; agent++)
            for (int mid = 0; mid < 2; mid++) {
                struct world_run w = {.ops = &comm_host,
                                      .n = world[i].n,
                                      .node_of = world[i].node_of,
                                      .timeout_ms = 60000,
                                      .fn = dies,
                                      .arg = mid ? &mid : NULL};

                world_run(&w, agent);
                for (int r = 0; r + 1 < w.n; r++) {
                    int peer = has_code(&w, r, ERR_RANK_PEER);

                    check(&w, peer || (agent && has_code(&w, r, ERR_RANK_ABORT)), "no time-out");
                }
                check(&w, w.rc[w.n - 1] == 1000 + SIGKILL, "it was killed");
                if (!agent && w.n == 2) {
                    check(&w, strncmp(w.lost[0], "1 all_reduce ", 13) == 0, "peer_lost");
                    check(&w, strstr(w.why[0], "rank 1 is gone") != NULL, "the peer is named");
                }
            }
}

/* --- aborts and deadlines --- */

static int only_last_calls(struct comm *c, struct boot *boot, void *arg, char why[1024])
{
    if (c->rank != c->size - 1) {
        pause_ms(600);
        return 0;
    }
    return tell(c, &(struct coll){.op = COLL_BARRIER}, why);
}

static void a_deadline_names_who_is_missing(void **state)
{
    struct world_run w = {
        .ops = &comm_thread, .n = 2, .as_threads = 1, .timeout_ms = 200, .fn = only_last_calls};

    for (int i = 0; i < 3; i++) {
        world_run(&w, 0);
        check(&w,
              has_code(&w, 1, ERR_RANK_TIMEOUT) && strstr(w.why[1], "for rank 0") &&
                  strstr(w.why[1], "barrier"),
              "time-out");
        w.ops = &comm_host;
        w.as_threads = 0;
        w.node_of = i ? two_nodes : NULL;
    }
}

static void *abort_later(void *arg)
{
    struct comm *c = arg;

    pause_ms(100);
    c->ops->abort(c);
    return NULL;
}

static int aborts_itself(struct comm *c, struct boot *boot, void *arg, char why[1024])
{
    pthread_t t;

    if (c->rank == 0) { /* never joins in: it only ends the wait of the others by ending its own */
        struct coll recv = {.op = COLL_RECV, .recv = why, .count = 1, .dtype = DS_U8, .root = 1};

        pthread_create(&t, NULL, abort_later, c);
        tell(c, &recv, why);
        pthread_join(t, NULL);
        return 0;
    }
    return tell(c, &(struct coll){.op = COLL_BARRIER}, why);
}

static void abort_ends_every_wait(void **state)
{
    struct world_run w = {
        .ops = &comm_thread, .n = 3, .as_threads = 1, .timeout_ms = 60000, .fn = aborts_itself};

    for (int i = 0; i < 2; i++) {
        world_run(&w, 0);
        for (int r = 0; r < 3; r++)
            check(&w, has_code(&w, r, ERR_RANK_ABORT), "abort");
        w.ops = &comm_host;
        w.as_threads = 0;
    }
}

/* What the agent reads while a rank waits: page of rank 0, read by rank 1. */
static struct rank_page *page_of_0;

static int watched(struct comm *c, struct boot *boot, void *arg, char why[1024])
{
    struct coll barrier = {.op = COLL_BARRIER};
    struct rank_page *p;

    if (c->rank == 0) {
        __atomic_store_n(&page_of_0, boot->page, __ATOMIC_RELEASE);
        tell(c, &barrier, why);
        return atoi(why) || __atomic_load_n(&boot->page->coll_seq, __ATOMIC_RELAXED) ? -1 : 0;
    }
    for (int i = 0; i < 5000; i++, pause_ms(1)) {
        p = __atomic_load_n(&page_of_0, __ATOMIC_ACQUIRE);
        if (p && __atomic_load_n(&p->coll_seq, __ATOMIC_RELAXED) == 1)
            break;
    }
    p = __atomic_load_n(&page_of_0, __ATOMIC_ACQUIRE);
    if (!p || __atomic_load_n(&p->coll_op, __ATOMIC_RELAXED) != COLL_BARRIER ||
        __atomic_load_n(&p->coll_peer, __ATOMIC_RELAXED) != 1 ||
        __atomic_load_n(&p->coll_seq, __ATOMIC_RELAXED) != 1)
        return -1;
    tell(c, &barrier, why);
    return atoi(why);
}

static void the_page_says_what_is_waited_for(void **state)
{
    struct world_run w = {
        .ops = &comm_thread, .n = 2, .as_threads = 1, .timeout_ms = 60000, .fn = watched};

    check(&w, world_run(&w, 0) == 0, "page");
}

/* --- strangers: create by hand, one rank with another key --- */

static int wrong_key_create(struct comm **out, struct boot *boot, struct device *dev,
                            int64_t timeout_ms, struct err *err)
{
    static const uint8_t other[32] = "not the key of this job";

    if (boot->rank == 1)
        boot->key = other;
    return comm_host.create(out, boot, dev, timeout_ms, err);
}

static int never(struct comm *c, struct boot *boot, void *arg, char why[1024])
{
    snprintf(why, 1024, "a rank without the key was let in");
    return -1;
}

static void a_peer_without_the_key_is_refused(void **state)
{
    struct comm_ops ops = comm_host;
    struct world_run w = {.ops = &ops,
                          .n = 2,
                          .node_of = two_nodes,
                          .timeout_ms = 700,
                          .fn = never,
                          .create_may_fail = 1};

    ops.create = wrong_key_create;
    check(&w, world_run(&w, 0) == 0, "let in");
    check(&w, strstr(w.why[1], "does not hold the job's key") != NULL, "the connector sees it");
    check(&w, strstr(w.why[0], "not connected to all its peers") != NULL, "the other waits on");
}

/* --- counters, worked by hand for 3 ranks --- */

static int counts(struct comm *c, struct boot *boot, void *arg, char why[1024])
{
    static const int64_t slice[3] = {1, 2, 4};
    /* all_reduce of 9 f32: slices of 3: 6 + 2*3 elements out and in.
     * reduce_scatter of 1+2+4: out 7 - own, in 2 * own. all_gather: the other way round.
     * broadcast of 5 from 1: root 2 * 5 out, others 5 in. all_to_all of 2 each: 4 out, 4 in.
     * send/recv of 3 u8 from 0 to 2. */
    static const uint64_t sent[3][COLL_OPS] = {
        {[COLL_ALL_REDUCE] = 48,
         [COLL_REDUCE_SCATTER] = 24,
         [COLL_ALL_GATHER] = 8,
         [COLL_BROADCAST] = 0,
         [COLL_ALL_TO_ALL] = 16,
         [COLL_SEND] = 3},
        {[COLL_ALL_REDUCE] = 48,
         [COLL_REDUCE_SCATTER] = 20,
         [COLL_ALL_GATHER] = 16,
         [COLL_BROADCAST] = 40,
         [COLL_ALL_TO_ALL] = 16},
        {[COLL_ALL_REDUCE] = 48,
         [COLL_REDUCE_SCATTER] = 12,
         [COLL_ALL_GATHER] = 32,
         [COLL_BROADCAST] = 0,
         [COLL_ALL_TO_ALL] = 16},
    };
    static const uint64_t received[3][COLL_OPS] = {
        {[COLL_ALL_REDUCE] = 48,
         [COLL_REDUCE_SCATTER] = 8,
         [COLL_ALL_GATHER] = 24,
         [COLL_BROADCAST] = 20,
         [COLL_ALL_TO_ALL] = 16},
        {[COLL_ALL_REDUCE] = 48,
         [COLL_REDUCE_SCATTER] = 16,
         [COLL_ALL_GATHER] = 20,
         [COLL_BROADCAST] = 0,
         [COLL_ALL_TO_ALL] = 16},
        {[COLL_ALL_REDUCE] = 48,
         [COLL_REDUCE_SCATTER] = 32,
         [COLL_ALL_GATHER] = 12,
         [COLL_BROADCAST] = 20,
         [COLL_ALL_TO_ALL] = 16,
         [COLL_RECV] = 3},
    };
    float a[16] = {0}, b[16];
    struct coll op[] = {
        {.op = COLL_ALL_REDUCE, .count = 9, .class = CLASS_GRAD},
        {.op = COLL_REDUCE_SCATTER, .counts = slice, .class = CLASS_GRAD},
        {.op = COLL_ALL_GATHER, .counts = slice, .class = CLASS_PARAM},
        {.op = COLL_BROADCAST, .count = 5, .root = 1, .class = CLASS_STATE, .dtype = DS_F32},
        {.op = COLL_ALL_TO_ALL, .count = 2, .class = CLASS_ACT},
        {.op = COLL_BARRIER, .class = CLASS_CONTROL},
        {.op = c->rank ? COLL_RECV : COLL_SEND,
         .count = 3,
         .root = c->rank ? 0 : 2,
         .dtype = DS_U8,
         .class = CLASS_ACT},
    };
    struct comm_counters n;

    for (int i = 0; i < 7; i++) {
        op[i].send = a;
        op[i].recv = b;
        if (i == 6 && c->rank == 1)
            break;
        tell(c, &op[i], why);
        if (atoi(why))
            return -1;
    }
    c->ops->counters(c, &n);
    for (int i = 0; i < 6; i++) {
        enum coll_op o = op[i].op;

        if (n.calls[o] != 1 || n.sent[o][op[i].class] != sent[c->rank][o] ||
            n.received[o][op[i].class] != received[c->rank][o]) {
            snprintf(why, 1024, "op %d: %lu calls, sent %lu, received %lu", o,
                     (unsigned long)n.calls[o], (unsigned long)n.sent[o][op[i].class],
                     (unsigned long)n.received[o][op[i].class]);
            return -1;
        }
    }
    return n.sent[COLL_SEND][CLASS_ACT] == sent[c->rank][COLL_SEND] &&
                   n.received[COLL_RECV][CLASS_ACT] == received[c->rank][COLL_RECV] &&
                   n.sent[COLL_ALL_REDUCE][CLASS_CONTROL] == 0
               ? 0
               : -1;
}

static void counters_equal_the_formula(void **state)
{
    struct world_run w = {
        .ops = &comm_thread, .n = 3, .as_threads = 1, .timeout_ms = 60000, .fn = counts};

    check(&w, world_run(&w, 0) == 0, "counters of thread");
    w.ops = &comm_host;
    w.as_threads = 0;
    check(&w, world_run(&w, 0) == 0, "counters of host");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mismatches_are_named_on_both_sides),
        cmocka_unit_test(a_dead_rank_ends_the_others),
        cmocka_unit_test(a_deadline_names_who_is_missing),
        cmocka_unit_test(abort_ends_every_wait),
        cmocka_unit_test(a_peer_without_the_key_is_refused),
        cmocka_unit_test(counters_equal_the_formula),
        cmocka_unit_test(the_page_says_what_is_waited_for),
        cmocka_unit_test(wrong_calls_are_refused),
    };

    setbuf(stdout, NULL);
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("comm_fail", tests, NULL, NULL);
}
