/* Collectives as seen from one rank, and the part of their work that stays inside a node.
 *
 * Every collective is a dense vector: each rank gives a span of it (coll_in) and wants a span
 * (coll_out). It is worked through in rounds: ranks whose memory peers cannot read copy into their
 * slots; a sync; the work; a sync; they copy out of their slots. When all memory is readable there
 * is one round. A sync before the work means every source is there, the sync after it that nobody
 * reads or writes any more.
 *
 * Reduction inside a node: the round is cut evenly among the ranks; each reads its part of all
 * sources, adds in rank order, and writes to whoever wants it. Gathers and broadcasts: each rank
 * pulls.
 */
#include "engine/comm/group.h"
#include "engine/comm/reduce.h"

#include <string.h>

struct span span_cut(struct span a, int64_t lo, int64_t hi)
{
    if (a.lo < lo)
        a.lo = lo;
    if (a.hi > hi)
        a.hi = hi;
    if (a.hi < a.lo)
        a.hi = a.lo;
    return a;
}

static struct span whole(const struct group *g)
{
    return (struct span){0, g->first[g->core.base.size]};
}

static struct span slice(const struct group *g, int rank)
{
    return (struct span){g->first[rank], g->first[rank + 1]};
}

struct span coll_in(const struct group *g, const struct coll *op, int rank)
{
    if (op->op == COLL_ALL_GATHER)
        return slice(g, rank);
    if (op->op == COLL_BROADCAST && rank != op->root)
        return (struct span){0, 0};
    return whole(g);
}

struct span coll_out(const struct group *g, const struct coll *op, int rank)
{
    if (op->op == COLL_REDUCE_SCATTER)
        return slice(g, rank);
    if (op->op == COLL_BROADCAST && rank == op->root)
        return (struct span){0, 0};
    return whole(g);
}

/* Bounds of the slices in first[]; one slice for ops that have none. */
static void lay_out(struct group *g, const struct coll *op)
{
    int size = g->core.base.size;
    int slices = op->op == COLL_REDUCE_SCATTER || op->op == COLL_ALL_GATHER;

    g->first[0] = 0;
    for (int r = 0; r < size; r++)
        g->first[r + 1] = slices ? g->first[r] + coll_count(op, r) : op->count;
}

static void describe(struct group *g, const struct coll *op)
{
    struct desc *d = &g->desc;

    *d = (struct desc){.op = op->op,
                       .dtype = op->dtype,
                       .reduce = op->reduce,
                       .seq = g->seq,
                       .root = op->op == COLL_BROADCAST ? op->root : 0,
                       .count = coll_total(op, g->core.base.size)};
    for (int r = 0; r <= g->core.base.size; r++)
        d->hash = (d->hash ^ (uint64_t)g->first[r]) * UINT64_C(0x100000001b3);
}

static struct ref span_ref(struct group *g, const void *p, struct span s, size_t bytes)
{
    return ref_of(g, p, (size_t)(s.hi - s.lo) * bytes);
}

static void publish(struct group *g, const struct coll *op)
{
    struct seat *seat = &g->region->seat[g->seat];
    int rank = g->core.base.rank, at = (int)(g->seq & 1);
    size_t bytes = ds_dtype_bytes(op->dtype);
    const void *give = op->op == COLL_BROADCAST ? op->recv : op->send;

    seat->desc[at] = g->desc;
    seat->in[at] = span_ref(g, give, coll_in(g, op, rank), bytes);
    seat->out[at] = span_ref(g, op->recv, coll_out(g, op, rank), bytes);
}

/* After the first sync: compares the calls of the node and keeps everyone's references. 1: somebody
 * stages. */
static int meet(struct group *g)
{
    int at = (int)(g->seq & 1), staged = 0;

    for (int i = 0; i < g->nlocal; i++) {
        const struct seat *s = &g->region->seat[i];

        if (memcmp(&s->desc[at], &g->desc, sizeof g->desc))
            return group_mismatch(g, g->local[i], &s->desc[at]);
        g->in_ref[i] = s->in[at];
        g->out_ref[i] = s->out[at];
        staged |= s->in[at].kind == REF_STAGED || s->out[at].kind == REF_STAGED;
    }
    return staged;
}

/* Where element 0 of the dense vector would lie in each rank's memory, for the round that starts at
 * lo. */
static void place(struct group *g, const struct coll *op, int64_t lo)
{
    int64_t bytes = (int64_t)ds_dtype_bytes(op->dtype);

    for (int i = 0; i < g->nlocal; i++) {
        int rank = g->local[i];
        char *in = ref_at(g, g->in_ref[i], rank), *out = ref_at(g, g->out_ref[i], rank);
        int64_t in_lo = in ? coll_in(g, op, rank).lo : lo;
        int64_t out_lo = out ? coll_out(g, op, rank).lo : lo;

        in = in ? in : region_slot(g, i, 0);
        out = out ? out : region_slot(g, i, 1);
        g->in[i] = (char *)((uintptr_t)in - (uintptr_t)(in_lo * bytes));
        g->out[i] = (char *)((uintptr_t)out - (uintptr_t)(out_lo * bytes));
    }
}

/* Own data of [lo, hi) into the own slot. */
static void copy_in(struct group *g, const struct coll *op, int64_t lo, int64_t hi)
{
    int rank = g->core.base.rank;
    size_t bytes = ds_dtype_bytes(op->dtype);
    struct span all = coll_in(g, op, rank), s = span_cut(all, lo, hi);
    const char *from = op->op == COLL_BROADCAST ? op->recv : op->send;

    if (s.hi > s.lo)
        memcpy(region_slot(g, g->seat, 0) + (size_t)(s.lo - lo) * bytes,
               from + (size_t)(s.lo - all.lo) * bytes, (size_t)(s.hi - s.lo) * bytes);
}

static void copy_out_span(struct group *g, const struct coll *op, int64_t lo, struct span s)
{
    size_t bytes = ds_dtype_bytes(op->dtype);
    int64_t base = coll_out(g, op, g->core.base.rank).lo;

    if (s.hi > s.lo)
        memcpy((char *)op->recv + (size_t)(s.lo - base) * bytes,
               region_slot(g, g->seat, 1) + (size_t)(s.lo - lo) * bytes,
               (size_t)(s.hi - s.lo) * bytes);
}

/* What others wrote to the own slot: a reduction's all, a gather's part from other nodes. */
static void copy_out(struct group *g, const struct coll *op, int64_t lo, int64_t hi)
{
    struct span want = span_cut(coll_out(g, op, g->core.base.rank), lo, hi);

    if (coll_reduces(op)) {
        copy_out_span(g, op, lo, want);
        return;
    }
    for (int r = 0; r < g->core.base.size; r++)
        if (g->seat_of[r] < 0)
            copy_out_span(g, op, lo, span_cut(coll_in(g, op, r), want.lo, want.hi));
}

static void reduce_span(struct group *g, const struct coll *op, int64_t lo, int64_t hi)
{
    int64_t bytes = (int64_t)ds_dtype_bytes(op->dtype);
    int n = 0;

    if (hi <= lo)
        return;
    for (int i = 0; i < g->nlocal; i++) {
        struct span want = span_cut(coll_out(g, op, g->local[i]), lo, hi);

        g->src[i] = g->in[i] + lo * bytes;
        if (want.hi > want.lo)
            g->dst[n++] = g->out[i] + lo * bytes;
    }
    reduce_many(g->dst, n, g->src, g->nlocal, hi - lo, op->reduce, op->dtype);
}

/* This rank's part of the round, cut where a slice ends, so that every piece has the same takers.
 */
static void reduce_part(struct group *g, const struct coll *op, int64_t lo, int64_t hi)
{
    int64_t n = hi - lo, k = g->nlocal, align = 64 / (int64_t)ds_dtype_bytes(op->dtype);
    int64_t from = n * g->seat / k, to = n * (g->seat + 1) / k;
    struct span part;

    if (op->op == COLL_ALL_REDUCE) { /* no two ranks write to one cache line */
        from = g->seat ? from / align * align : 0;
        to = g->seat + 1 < k ? to / align * align : n;
        reduce_span(g, op, lo + from, lo + to);
        return;
    }
    for (int i = 0; i < g->core.base.size; i++) {
        part = span_cut(slice(g, i), lo + from, lo + to);
        reduce_span(g, op, part.lo, part.hi);
    }
}

/* What ranks of this node give of [lo, hi), straight into the own recv. */
static void pull(struct group *g, const struct coll *op, int64_t lo, int64_t hi)
{
    size_t bytes = ds_dtype_bytes(op->dtype);
    int rank = g->core.base.rank;
    struct span want = coll_out(g, op, rank);

    for (int i = 0; i < g->nlocal; i++) {
        int at = (g->seat + i) % g->nlocal;
        struct span s = span_cut(coll_in(g, op, g->local[at]), lo, hi);
        char *to = (char *)op->recv + (size_t)s.lo * bytes;
        const char *from = g->in[at] + s.lo * (int64_t)bytes;

        s = span_cut(s, want.lo, want.hi);
        if (s.hi > s.lo && from != to)
            memmove(to, from, (size_t)(s.hi - s.lo) * bytes);
    }
}

static int work(struct group *g, const struct coll *op, int64_t lo, int64_t hi)
{
    if (!coll_reduces(op))
        pull(g, op, lo, hi);
    else if (g->nruns == 1)
        reduce_part(g, op, lo, hi);
    if (g->swap && coll_reduces(op))
        return swap_work(g, op);
    return g->nruns > 1 ? chain_work(g, op, lo, hi) : 0;
}

/* Out-slots are used only where others write for this rank. */
static int gets_by_slot(const struct group *g, const struct coll *op)
{
    return g->out_ref[g->seat].kind == REF_STAGED && (coll_reduces(op) || g->nruns > 1);
}

static int rounds(struct group *g, const struct coll *op)
{
    size_t bytes = ds_dtype_bytes(op->dtype);
    int64_t total = g->first[g->core.base.size];
    int64_t round = (int64_t)(SLOT_BYTES * (g->nruns > 1 ? NET_SLOTS : 1) / bytes);
    int gives_slot, staged = 0;

    publish(g, op);
    gives_slot = g->region->seat[g->seat].in[g->seq & 1].kind == REF_STAGED;
    for (int64_t lo = 0; lo < total || lo == 0; lo += round) {
        int64_t hi = total - lo < round ? total : lo + round;

        if (gives_slot)
            copy_in(g, op, lo, hi);
        if (group_sync(g))
            return -1;
        if (lo == 0) {
            staged = meet(g);
            if (g->seq == 1)
                group_see(g);
            if (staged < 0)
                return -1;
            if (!staged)
                hi = round = total;
        }
        place(g, op, lo);
        if (work(g, op, lo, hi) || group_sync(g))
            return -1;
        if (staged && gets_by_slot(g, op))
            copy_out(g, op, lo, hi);
        if (total == 0)
            break;
    }
    return 0;
}

int collective(struct group *g, const struct coll *op)
{
    static const struct coll one = {.op = COLL_ALL_REDUCE, .count = 1, .dtype = DS_U8};
    struct coll barrier = one;
    uint8_t token = 0;

    g->seq++;
    if (op->op == COLL_BARRIER) {
        barrier.send = barrier.recv = &token;
        lay_out(g, &barrier);
        describe(g, &barrier);
        g->desc.op = COLL_BARRIER;
        return rounds(g, &barrier);
    }
    lay_out(g, op);
    describe(g, op);
    return rounds(g, op);
}
