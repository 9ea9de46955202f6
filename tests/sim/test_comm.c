/* Every collective on thread and host against a plain sum in rank order. */
#include "tests/sim/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum ds_dtype dtypes[] = {DS_F32, DS_BF16, DS_F16, DS_F64, DS_I64, DS_U8};
#define DTYPES 6

/* --- numbers: made here, added here, in the plainest way --- */

static uint16_t to_bf16(float f)
{
    uint32_t u, low;

    memcpy(&u, &f, 4);
    low = u & 0xffff;
    u >>= 16;
    if (low > 0x8000 || (low == 0x8000 && (u & 1)))
        u++;
    return (uint16_t)u;
}

static float from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, 4);
    return f;
}

/* Magnitudes differ by 2^16 among ranks, so that fp32 sums depend on the order; f16's stay within its range
 * and some are subnormal. */
static double number(int rank, int64_t i, unsigned salt, enum ds_dtype t)
{
    uint64_t h =
        ((uint64_t)rank * 1000003 + (uint64_t)i + salt * 7919) * UINT64_C(0x9e3779b97f4a7c15);
    double sign = h >> 63 ? -1 : 1;

    return sign * (double)(h >> 40 & 0xffffff) * (double)(1 << (h >> 32 & 15)) / (t == DS_F16 ? 0x1p31 : 65536);
}

static void store(void *p, int64_t i, enum ds_dtype t, double v)
{
    if (t == DS_F32)
        ((float *)p)[i] = (float)v;
    else if (t == DS_BF16)
        ((uint16_t *)p)[i] = to_bf16((float)v);
    else if (t == DS_F16)
        ((_Float16 *)p)[i] = (_Float16)v;
    else if (t == DS_F64)
        ((double *)p)[i] = v;
    else if (t == DS_I64)
        ((int64_t *)p)[i] = (int64_t)(v * 1000);
    else
        ((uint8_t *)p)[i] = (uint8_t)(int64_t)v;
}

static void fill(void *p, int rank, int64_t from, int64_t n, enum ds_dtype t, unsigned salt)
{
    for (int64_t i = 0; i < n; i++)
        store(p, i, t, number(rank, from + i, salt, t));
}

/* Element i of the reduction over n ranks, as bytes. */
static void expect_one(void *out, int n, int64_t i, enum ds_dtype t, int max, unsigned salt)
{
    float f = 0;
    double d = 0;
    int64_t l = 0;
    uint8_t u = 0;

    for (int r = 0; r < n; r++) {
        double raw;
        float rf;
        int64_t rl;
        uint8_t ru;

        store(&raw, 0, DS_F64, number(r, i, salt, t));
        store(&rl, 0, DS_I64, number(r, i, salt, t));
        store(&ru, 0, DS_U8, number(r, i, salt, t));
        if (t == DS_BF16) {
            uint16_t h;

            store(&h, 0, DS_BF16, number(r, i, salt, t));
            rf = from_bf16(h);
        } else if (t == DS_F16) {
            _Float16 h;

            store(&h, 0, DS_F16, number(r, i, salt, t));
            rf = (float)h;
        } else {
            store(&rf, 0, DS_F32, number(r, i, salt, t));
        }
        if (r == 0) {
            f = rf, d = raw, l = rl, u = ru;
        } else if (max) {
            f = rf > f ? rf : f;
            d = raw > d ? raw : d;
            l = rl > l ? rl : l;
            u = ru > u ? ru : u;
        } else {
            f += rf;
            d += raw;
            l += rl;
            u = (uint8_t)(u + ru);
        }
    }
    if (t == DS_F32)
        memcpy(out, &f, 4);
    else if (t == DS_BF16 || t == DS_F16)
        store(out, 0, t, f);
    else if (t == DS_F64)
        memcpy(out, &d, 8);
    else if (t == DS_I64)
        memcpy(out, &l, 8);
    else
        memcpy(out, &u, 1);
}

/* --- one rank's part --- */

struct plan {
    int64_t sizes[6];
    int nsizes;
    int memory; /* 1: comm_alloc, 0: plain, 2: by rank, some one and some the other */
};

struct job {
    struct comm *c;
    char *why;
    char *send, *recv;
    enum ds_dtype t;
    size_t es;
    int64_t n;
    unsigned salt;
};

#define FAIL(j, ...) return snprintf((j)->why, 1024, __VA_ARGS__), -1

static int run(struct job *j, struct coll op)
{
    struct err err = ERR_INIT;

    op.dtype = j->t;
    op.class = CLASS_GRAD;
    if (comm_run(j->c, &op, &err))
        FAIL(j, "%s", err.text);
    return 0;
}

static int same_reduction(struct job *j, const char *what, const char *got, int64_t from, int64_t n,
                          int max)
{
    char want[8];

    for (int64_t i = 0; i<n; i += n> 5000 ? 97 : 1) {
        expect_one(want, j->c->size, from + i, j->t, max, j->salt);
        if (memcmp(want, got + (size_t)i * j->es, j->es))
            FAIL(j, "%s dtype %d n %ld: element %ld differs", what, j->t, (long)j->n,
                 (long)(from + i));
    }
    return 0;
}

static int same_fill(struct job *j, const char *what, const char *got, int rank, int64_t from,
                     int64_t n, unsigned salt)
{
    char want[8];

    for (int64_t i = 0; i<n; i += n> 5000 ? 97 : 1) {
        fill(want, rank, from + i, 1, j->t, salt);
        if (memcmp(want, got + (size_t)i * j->es, j->es))
            FAIL(j, "%s dtype %d n %ld: element %ld of rank %d differs", what, j->t, (long)j->n,
                 (long)(from + i), rank);
    }
    return 0;
}

static int64_t uneven(int64_t n, int size, int rank)
{
    int64_t base = n / size;

    return rank == 0 ? base / 2 : rank == size - 1 ? n - base / 2 - (size - 2) * base : base;
}

static int all_reduce(struct job *j)
{
    int me = j->c->rank;

    for (int max = 0; max < 2; max++) {
        fill(j->send, me, 0, j->n, j->t, j->salt);
        memset(j->recv, 0xee, (size_t)j->n * j->es);
        if (run(j, (struct coll){.op = COLL_ALL_REDUCE,
                                 .send = j->send,
                                 .recv = j->recv,
                                 .count = j->n,
                                 .reduce = max ? COLL_MAX : COLL_SUM}) ||
            same_reduction(j, max ? "all_reduce max" : "all_reduce", j->recv, 0, j->n, max))
            return -1;
    }
    memcpy(j->recv, j->send, (size_t)j->n * j->es);
    if (run(j,
            (struct coll){.op = COLL_ALL_REDUCE, .send = j->recv, .recv = j->recv, .count = j->n}))
        return -1;
    return same_reduction(j, "all_reduce in place", j->recv, 0, j->n, 0);
}

static int slices(struct job *j)
{
    int size = j->c->size, me = j->c->rank;
    int64_t counts[WORLD_MAX], first = 0;
    struct coll op;

    for (int r = 0; r < size; r++) {
        counts[r] = size == 1 ? j->n : uneven(j->n, size, r);
        first += r < me ? counts[r] : 0;
    }
    op = (struct coll){
        .op = COLL_REDUCE_SCATTER, .send = j->send, .recv = j->recv, .counts = counts};
    fill(j->send, me, 0, j->n, j->t, j->salt);
    if (run(j, op) || same_reduction(j, "reduce_scatter", j->recv, first, counts[me], 0))
        return -1;
    /* in place: into the own slice of send */
    op.recv = j->send + (size_t)first * j->es;
    if (run(j, op) || same_reduction(j, "reduce_scatter in place", op.recv, first, counts[me], 0))
        return -1;
    op = (struct coll){.op = COLL_ALL_GATHER, .send = j->send, .recv = j->recv, .counts = counts};
    for (int place = 0; place < 2; place++) {
        int64_t at = 0;

        memset(j->recv, 0xee, (size_t)j->n * j->es);
        op.send = place ? j->recv + (size_t)first * j->es : j->send;
        fill((char *)(uintptr_t)op.send, me, 0, counts[me], j->t, j->salt);
        if (run(j, op))
            return -1;
        for (int r = 0; r < size; at += counts[r++])
            if (same_fill(j, place ? "all_gather in place" : "all_gather",
                          j->recv + (size_t)at * j->es, r, 0, counts[r], j->salt))
                return -1;
    }
    return 0;
}

static int broadcast(struct job *j)
{
    for (int root = 0; root<j->c->size; root += j->c->size> 2 ? 2 : 1) {
        memset(j->recv, 0xee, (size_t)j->n * j->es);
        if (j->c->rank == root)
            fill(j->recv, root, 0, j->n, j->t, j->salt);
        if (run(j,
                (struct coll){
                    .op = COLL_BROADCAST, .recv = j->recv, .count = j->n, .root = root}) ||
            same_fill(j, "broadcast", j->recv, root, 0, j->n, j->salt))
            return -1;
    }
    return run(j, (struct coll){.op = COLL_BARRIER});
}

static int all_to_all(struct job *j)
{
    int size = j->c->size, me = j->c->rank;
    int64_t n = j->n / size;

    for (int r = 0; r < size; r++)
        fill(j->send + (size_t)(r * n) * j->es, me, 0, n, j->t, (unsigned)r);
    memset(j->recv, 0xee, (size_t)j->n * j->es);
    if (run(j, (struct coll){.op = COLL_ALL_TO_ALL, .send = j->send, .recv = j->recv, .count = n}))
        return -1;
    for (int r = 0; r < size; r++)
        if (same_fill(j, "all_to_all", j->recv + (size_t)(r * n) * j->es, r, 0, n, (unsigned)me))
            return -1;
    return 0;
}

/* Around the ring in one group with an all-reduce: nothing may wait for the order within the group.
 */
static int ring(struct job *j)
{
    const struct device_ops *dev = j->c->device->ops;
    struct ds_stream *s = dev->stream(j->c->device, STREAM_COMM);
    int size = j->c->size, me = j->c->rank, next = (me + 1) % size, prev = (me + size - 1) % size;
    float sum = (float)me;
    struct coll op[3] = {
        {.op = COLL_SEND, .send = j->send, .count = j->n, .dtype = j->t, .root = next},
        {.op = COLL_RECV, .recv = j->recv, .count = j->n, .dtype = j->t, .root = prev},
        {.op = COLL_ALL_REDUCE, .send = &sum, .recv = &sum, .count = 1, .dtype = DS_F32},
    };
    struct err err = ERR_INIT;

    if (size == 1)
        return 0;
    fill(j->send, me, 0, j->n, j->t, j->salt);
    if (j->c->ops->submit(j->c, op, 3, s, &err))
        FAIL(j, "ring: %s", err.text);
    dev->event_done(dev->record(s), 1);
    if (j->c->ops->poll(j->c, &err))
        FAIL(j, "ring: %s", err.text);
    if (sum != (float)(size * (size - 1) / 2))
        FAIL(j, "ring: the sum beside it is %g", (double)sum);
    return same_fill(j, "ring", j->recv, prev, 0, j->n, j->salt);
}

static int everything(struct comm *c, struct boot *boot, void *arg, char why[1024])
{
    const struct plan *plan = arg;
    size_t bytes = 64;
    struct job j = {.c = c, .why = why};
    struct err err = ERR_INIT;
    char *shared[2], *plain[2];
    int rc = 0, mine;

    for (int i = 0; i < plan->nsizes; i++)
        bytes = (size_t)plan->sizes[i] * 8 > bytes ? (size_t)plan->sizes[i] * 8 : bytes;
    for (int i = 0; i < 2; i++) {
        shared[i] = plan->memory ? c->ops->alloc(c, bytes, MEM_GRAD, &err) : NULL;
        plain[i] = malloc(bytes);
        if (plan->memory && !shared[i])
            FAIL(&j, "alloc: %s", err.text);
    }
    mine = plan->memory == 1 || (plan->memory == 2 && c->rank % 2 == 0);
    j.send = mine ? shared[0] : plain[0];
    j.recv = mine || (plan->memory == 2 && c->rank % 3 == 0) ? shared[1] : plain[1];
    for (int d = 0; d < DTYPES && !rc; d++)
        for (int i = 0; i < plan->nsizes && !rc; i++) {
            j.t = dtypes[d];
            j.es = ds_dtype_bytes(j.t);
            j.n = plan->sizes[i];
            if (j.n > 100000 && j.t != DS_F32 && j.t != DS_BF16 && j.t != DS_F16)
                continue; /* the others take the same way */
            j.salt = (unsigned)(d * 10 + i);
            rc = all_reduce(&j) || slices(&j) || broadcast(&j) || all_to_all(&j) || ring(&j) ? -1
                                                                                             : 0;
        }
    free(plain[0]);
    free(plain[1]);
    return rc;
}

static const struct plan small = {{0, 1, 7, 1000, 70000}, 5, 0};
static const struct plan large = {{0, 1, 7, 1000, 1 << 20}, 5, 1};

static void check_world(struct world_run w)
{
    if (world_run(&w, 1) == 0)
        return;
    for (int r = 0; r < w.n; r++)
        if (w.rc[r])
            print_message("# rank %d of %d: rc %d: %s\n", r, w.n, w.rc[r], w.why[r]);
    fail();
}

static const int worlds[] = {2, 5, 3, 1, 4, 7};
#ifdef __SANITIZE_THREAD__
#define WORLDS 2 /* ten times slower there */
#else
#define WORLDS 6
#endif

static void thread_equals_plain_sum(void **state)
{
    for (int i = 0; i < WORLDS; i++)
        check_world((struct world_run){.ops = &comm_thread,
                                       .n = worlds[i],
                                       .as_threads = 1,
                                       .timeout_ms = 60000,
                                       .fn = everything,
                                       .arg = (void *)&small});
}

static void thread_on_async_device(void **state)
{
    check_world((struct world_run){.ops = &comm_thread,
                                   .device = &device_cpu_async,
                                   .n = 3,
                                   .as_threads = 1,
                                   .timeout_ms = 60000,
                                   .fn = everything,
                                   .arg = (void *)&small});
}

static void host_shared_memory(void **state)
{
    for (int i = 0; i < WORLDS; i++)
        check_world((struct world_run){.ops = &comm_host,
                                       .n = worlds[i],
                                       .timeout_ms = 60000,
                                       .fn = everything,
                                       .arg = (void *)&large});
}

static void host_staged_memory(void **state)
{
    struct plan mixed = small;

    mixed.memory = 2;
    mixed.sizes[4] = 300000; /* several rounds */
    for (int i = 0; i < WORLDS; i++)
        check_world((struct world_run){.ops = &comm_host,
                                       .n = worlds[i],
                                       .timeout_ms = 60000,
                                       .fn = everything,
                                       .arg = (void *)&small});
    check_world((struct world_run){
        .ops = &comm_host, .n = 4, .timeout_ms = 60000, .fn = everything, .arg = &mixed});
}

/* one rank a node, even, uneven, interleaved, ranks without a lane */
static const int layouts[][WORLD_MAX] = {
    {0, 1}, {0, 0, 1, 1}, {0, 0, 1}, {0, 1, 1, 1}, {0, 1, 0, 1}, {0, 1, 2}, {0, 0, 1, 1, 1, 2, 2},
};
static const int layout_n[] = {2, 4, 3, 4, 4, 3, 7};

static void host_between_nodes(void **state)
{
    for (int memory = 0; memory < 3; memory++) {
        struct plan p = memory == 1 ? large : small;

        p.memory = memory;
        for (int i = 0; i < 7; i++) {
            if (memory == 2)
                p.sizes[4] = 1300000; /* several blocks on the wire; sums that are sent back */
            if (memory == 2 && i != 0 && i != 2 && i != 4)
                continue;
            check_world((struct world_run){.ops = &comm_host,
                                           .n = layout_n[i],
                                           .node_of = layouts[i],
                                           .timeout_ms = 60000,
                                           .fn = everything,
                                           .arg = &p});
        }
    }
}

static int splits(struct comm *c, struct boot *boot, void *arg, char why[1024])
{
    struct err err = ERR_INIT;
    struct comm *half = NULL, *none = NULL;
    float *x = c->ops->alloc(c, 4096, MEM_GRAD, &err), want = 0;
    struct coll op = {.op = COLL_ALL_REDUCE, .send = x, .recv = x, .count = 1, .dtype = DS_F32};
    int rc = -1;

    if (c->ops->split(&half, c, c->rank % 2, &err) ||
        c->ops->split(&none, c, c->rank ? 5 : -1, &err)) {
        snprintf(why, 1024, "split: %s", err.text);
        goto out;
    }
    for (int r = c->rank % 2; r < c->size; r += 2)
        want += (float)(r + 1);
    x[0] = (float)(c->rank + 1);
    if (half->rank != c->rank / 2 || half->size != (c->size + 1 - c->rank % 2) / 2) {
        snprintf(why, 1024, "rank %d of %d", half->rank, half->size);
    } else if (comm_run(half, &op, &err)) {
        snprintf(why, 1024, "run: %s", err.text);
    } else if (x[0] != want || (none == NULL) != (c->rank == 0)) {
        snprintf(why, 1024, "sum %g, not %g", (double)x[0], (double)want);
    } else {
        rc = 0;
    }
out:
    if (half)
        half->ops->destroy(half);
    if (none)
        none->ops->destroy(none);
    return rc;
}

static void split_makes_groups(void **state)
{
    check_world((struct world_run){
        .ops = &comm_thread, .n = 5, .as_threads = 1, .timeout_ms = 20000, .fn = splits});
    check_world((struct world_run){.ops = &comm_host, .n = 5, .timeout_ms = 20000, .fn = splits});
    check_world((struct world_run){
        .ops = &comm_host, .n = 7, .node_of = layouts[6], .timeout_ms = 20000, .fn = splits});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_shared_memory),      cmocka_unit_test(host_staged_memory),
        cmocka_unit_test(host_between_nodes),      cmocka_unit_test(split_makes_groups),
        cmocka_unit_test(thread_equals_plain_sum), cmocka_unit_test(thread_on_async_device),
    };

    setbuf(stdout, NULL);
    return cmocka_run_group_tests_name("comm", tests, NULL, NULL);
}
