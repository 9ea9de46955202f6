/* Collectives between nodes: a chain of runs (consecutive ranks on one node), in rank order.
 *
 * Sums must be those of a plain sum in rank order, so partial sums travel forward along the chain,
 * each run adding its ranks in order, and results travel back. Both directions are busy at the same
 * time, so an all-reduce of S bytes puts S bytes on each direction of each link, no more than a
 * ring of two does, and the sum of all links equals the ring's. Gathers and broadcasts spread both
 * ways from where the data is. The vector is cut among lanes: the rank number L of every node works
 * on lane L, on connections of its own, as many lanes as the smallest node has ranks.
 *
 * A lane's part is cut into segments; each direction of each run has RING buffers, so that
 * receiving, adding and sending overlap. A head with the call's description goes first on each
 * direction of each link, so both ends notice when their calls differ. All ranks of a node have met
 * before (local.c), so their memory may be read and written.
 */
#include "engine/comm/group.h"
#include "engine/comm/reduce.h"
#include "engine/base/buf.h"

#include <stdlib.h>
#include <string.h>

#define RING 4
#define PIECES 8 /* at least, of what is large enough to overlap */
#define LEAST_BYTES 65536
enum { FORWARD, BACK };

struct piece {
    int64_t lo, n;
    int origin; /* run whose node owns it (gathers), or up to which the result goes back
                   (reductions) */
};

struct flow {
    int in_fd, out_fd;     /* -1 at the ends of the chain */
    int in_peer, out_peer; /* ranks */
    int in_link, out_link;
    int in, out;          /* pieces taken in, handed on; out <= in <= out + RING */
    size_t in_at, out_at; /* bytes of the current ones */
    size_t head_in, head_out;
    struct desc head;
    char *buf[RING];
    const char *data[RING]; /* what to send of a piece: buf or memory */
};

struct stage {
    int run;
    struct flow flow[2];
};

struct chain {
    struct stage *stage; /* the runs of this node, if this rank works on a lane */
    int nstages, lane;
    struct piece *piece;
    int npieces, cap;
    /* of the call in progress */
    const struct coll *op;
    size_t bytes, acc; /* of an element, of what travels forward */
};

static void flow_init(struct group *g, struct flow *f, int in_link, int out_link, int lane,
                      int back)
{
    f->in_link = in_link;
    f->out_link = out_link;
    f->in_fd = f->out_fd = -1;
    if (in_link >= 0) {
        f->in_fd = g->link[in_link * g->lanes + lane];
        f->in_peer = lane_worker(g, back ? in_link + 1 : in_link, lane);
    }
    if (out_link >= 0) {
        f->out_fd = g->link[out_link * g->lanes + lane];
        f->out_peer = lane_worker(g, back ? out_link : out_link + 1, lane);
    }
    for (int i = 0; i < RING; i++)
        f->buf[i] = xmalloc(SLOT_BYTES);
}

struct chain *chain_create(struct group *g)
{
    struct chain *c = xcalloc(1, sizeof *c);

    c->lane = g->seat;
    if (g->seat >= g->lanes)
        return c;
    c->stage = xcalloc((size_t)g->nruns, sizeof *c->stage);
    for (int r = 0; r < g->nruns; r++) {
        struct stage *s = &c->stage[c->nstages];
        int next = r + 1 < g->nruns ? r : -1;

        if (g->run[r].node != g->node_of[g->core.base.rank])
            continue;
        s->run = r;
        flow_init(g, &s->flow[FORWARD], r - 1, next, c->lane, 0);
        flow_init(g, &s->flow[BACK], next, r - 1, c->lane, 1);
        c->nstages++;
    }
    return c;
}

size_t chain_bytes(const struct chain *c)
{
    return c ? (size_t)c->nstages * 2 * RING * SLOT_BYTES : 0;
}

void chain_destroy(struct chain *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->nstages; i++)
        for (int d = 0; d < 2; d++)
            for (int b = 0; b < RING; b++)
                free(c->stage[i].flow[d].buf[b]);
    free(c->stage);
    free(c->piece);
    free(c);
}

static int last_run_of(const struct group *g, int node)
{
    int at = 0;

    for (int r = 0; r < g->nruns; r++)
        if (g->run[r].node == node)
            at = r;
    return at;
}

static void add_pieces(struct group *g, struct span s, int origin)
{
    struct chain *c = g->chain;
    int64_t widest = (int64_t)(c->acc > c->bytes ? c->acc : c->bytes);
    int64_t step = (s.hi - s.lo) * widest / PIECES;

    step = step < LEAST_BYTES           ? LEAST_BYTES
           : step > (int64_t)SLOT_BYTES ? (int64_t)SLOT_BYTES
                                        : step;
    step /= widest;
    for (int64_t lo = s.lo; lo < s.hi; lo += step) {
        ARRAY_GROW(c->piece, c->npieces, c->cap);
        c->piece[c->npieces++] = (struct piece){lo, s.hi - lo < step ? s.hi - lo : step, origin};
    }
}

static void cut_block(struct group *g, const struct coll *op, int64_t lo, int64_t hi)
{
    struct chain *c = g->chain;
    int64_t n = hi - lo, align = 64 / (int64_t)c->bytes;
    int64_t from = n * c->lane / g->lanes / align * align;
    int64_t to = c->lane + 1 < g->lanes ? n * (c->lane + 1) / g->lanes / align * align : n;
    struct span part = {lo + from, lo + to};

    if (op->op == COLL_ALL_REDUCE)
        add_pieces(g, part, 0);
    else if (op->op == COLL_BROADCAST)
        add_pieces(g, part, last_run_of(g, g->node_of[op->root]));
    else
        for (int r = 0; r < g->core.base.size; r++)
            add_pieces(g, span_cut(part, g->first[r], g->first[r + 1]),
                       last_run_of(g, g->node_of[r]));
}

/* The pieces of this lane, in order; the same at every stage. Blocks are what a node that stages
 * works through in one round, so nodes that do and nodes that do not agree on what is on the wire.
 */
static void cut(struct group *g, const struct coll *op, int64_t lo, int64_t hi)
{
    int64_t block = (int64_t)(NET_SLOTS * SLOT_BYTES / g->chain->bytes);

    g->chain->npieces = 0;
    for (int64_t at = lo; at < hi; at += block)
        cut_block(g, op, at, hi - at < block ? hi : at + block);
}

/* Does this piece travel over link (between run link and link + 1) in this direction? */
static int carries(const struct chain *c, const struct piece *p, int link, int dir)
{
    if (link < 0)
        return 0;
    if (coll_reduces(c->op))
        return dir == FORWARD || link >= p->origin;
    return dir == FORWARD ? link >= p->origin : link < p->origin;
}

/* Every rank of the node has pulled what the node owns. */
static int pulled(const struct group *g, const struct piece *p)
{
    return !coll_reduces(g->chain->op) && g->run[p->origin].node == g->node_of[g->core.base.rank];
}

/* Where a piece is received: in this rank's own memory when it is final and wanted whole. */
static char *landing(const struct group *g, const struct stage *s, int dir, const struct piece *p)
{
    const struct chain *c = g->chain;
    const struct flow *f = &s->flow[dir];
    struct span want = coll_out(g, c->op, g->core.base.rank);

    if ((coll_reduces(c->op) && dir == FORWARD) || pulled(g, p) || want.lo > p->lo ||
        want.hi < p->lo + p->n)
        return f->buf[f->in % RING];
    return g->out[g->seat] + p->lo * (int64_t)c->bytes;
}

/* A piece that came from elsewhere, or a result, to whoever of this node wants it. */
static void deliver(struct group *g, const struct piece *p, const char *data)
{
    const struct chain *c = g->chain;

    if (pulled(g, p))
        return;
    for (int i = 0; i < g->nlocal; i++) {
        struct span want = span_cut(coll_out(g, c->op, g->local[i]), p->lo, p->lo + p->n);

        if (want.hi > want.lo && g->out[i] + p->lo * (int64_t)c->bytes != data)
            memcpy(g->out[i] + want.lo * (int64_t)c->bytes,
                   data + (size_t)(want.lo - p->lo) * c->bytes,
                   (size_t)(want.hi - want.lo) * c->bytes);
    }
}

/* The end of the chain in one pass, when partial sums and results have one type: src[] holds n
 * ranks. */
static void turn(struct group *g, struct stage *s, const struct piece *p, int at, int n)
{
    const struct chain *c = g->chain;
    struct flow *back = &s->flow[BACK];
    int ndst = 0;

    memmove(g->src + 1, g->src, (size_t)n * sizeof *g->src);
    g->src[0] = s->flow[FORWARD].buf[at % RING];
    for (int i = 0; i < g->nlocal; i++) {
        struct span want = span_cut(coll_out(g, c->op, g->local[i]), p->lo, p->lo + p->n);

        if (want.hi > want.lo) /* a piece lies in one slice: wanted whole or not at all */
            g->dst[ndst++] = g->out[i] + p->lo * (int64_t)c->bytes;
    }
    if (!ndst)
        g->dst[ndst++] = back->buf[at % RING];
    reduce_many(g->dst, ndst, g->src, n + 1, p->n, c->op->reduce, c->op->dtype);
    back->data[at % RING] = g->dst[0];
    back->in = at + 1;
}

/* Adds the run's ranks to what came (have) or begins with them; at the end of the chain, turns
 * round. */
static void add_run(struct group *g, struct stage *s, const struct piece *p, int at, int have)
{
    const struct chain *c = g->chain;
    const struct run *run = &g->run[s->run];
    struct flow *f = &s->flow[FORWARD], *back = &s->flow[BACK];
    int n = run->end - run->first;

    for (int i = 0; i < n; i++)
        g->src[i] = g->in[g->seat_of[run->first + i]] + p->lo * (int64_t)c->bytes;
    f->data[at % RING] = f->buf[at % RING];
    if (have && f->out_link < 0 && c->acc == c->bytes) {
        turn(g, s, p, at, n);
        return;
    }
    if (!have && n == 1 && c->acc == c->bytes)
        f->data[at % RING] = g->src[0]; /* sent from where it lies */
    else
        reduce_into(f->buf[at % RING], have, g->src, n, p->n, c->op->reduce, c->op->dtype);
    if (f->out_link >= 0)
        return;
    back->data[at % RING] = back->buf[at % RING];
    reduce_round(back->buf[at % RING], f->data[at % RING], p->n, c->op->dtype);
    deliver(g, p, back->buf[at % RING]);
    back->in = at + 1;
}

/* A whole piece is in (got: it came over the wire). */
static void take(struct group *g, struct stage *s, int dir, int got)
{
    const struct chain *c = g->chain;
    struct flow *f = &s->flow[dir];
    const struct piece *p = &c->piece[f->in];

    if (coll_reduces(c->op) && dir == FORWARD) {
        add_run(g, s, p, f->in, got);
    } else if (got) {
        f->data[f->in % RING] = landing(g, s, dir, p);
        deliver(g, p, f->data[f->in % RING]);
    } else if (!coll_reduces(c->op)) { /* it starts here: from the memory of its owner */
        for (int i = 0; i < g->nlocal; i++) {
            struct span has = coll_in(g, c->op, g->local[i]);

            if (has.lo <= p->lo && p->lo < has.hi)
                f->data[f->in % RING] = g->in[i] + p->lo * (int64_t)c->bytes;
        }
    }
    f->in++;
    f->in_at = 0;
}

static int may_take(const struct group *g, const struct stage *s, int dir)
{
    const struct chain *c = g->chain;
    const struct flow *f = &s->flow[dir], *back = &s->flow[BACK];
    int last = s->run == g->nruns - 1;

    if (f->in == c->npieces || f->in - f->out == RING)
        return 0;
    if (!coll_reduces(c->op) || !last)
        return 1;
    return dir == FORWARD && f->in - back->out < RING; /* back is fed by forward */
}

static size_t wire_bytes(const struct chain *c, const struct piece *p, int dir)
{
    return (size_t)p->n * (coll_reduces(c->op) && dir == FORWARD ? c->acc : c->bytes);
}

/* 1: moved, 0: not now, -1: failed */
static int flow_in(struct group *g, struct stage *s, int dir)
{
    const struct chain *c = g->chain;
    struct flow *f = &s->flow[dir];
    char how[128];
    int rc = 1, moved = 0;

    while (rc == 1 && f->in_fd >= 0 && f->head_in < sizeof f->head) {
        rc = net_recv(f->in_fd, &f->head, sizeof f->head, &f->head_in, how);
        moved |= rc == 1;
        if (f->head_in == sizeof f->head && memcmp(&f->head, &g->desc, sizeof f->head))
            return group_mismatch(g, f->in_peer, &f->head);
    }
    while (rc == 1 && may_take(g, s, dir)) {
        const struct piece *p = &c->piece[f->in];
        int got = carries(c, p, f->in_link, dir);
        size_t n = got ? wire_bytes(c, p, dir) : 0;

        if (f->in_at < n)
            rc = net_recv(f->in_fd, landing(g, s, dir, p), n, &f->in_at, how);
        moved |= rc == 1;
        if (rc == 1 && f->in_at == n)
            take(g, s, dir, got);
    }
    return rc < 0 ? group_lost(g, f->in_peer, &g->desc, how) : moved;
}

static int flow_out(struct group *g, struct stage *s, int dir)
{
    const struct chain *c = g->chain;
    struct flow *f = &s->flow[dir];
    char how[128];
    int rc = 1, moved = 0;

    while (rc == 1 && f->out_fd >= 0 && f->head_out < sizeof g->desc) {
        rc = net_send(f->out_fd, &g->desc, sizeof g->desc, &f->head_out, how);
        moved |= rc == 1;
    }
    while (rc == 1 && f->out < f->in) {
        const struct piece *p = &c->piece[f->out];
        size_t n = carries(c, p, f->out_link, dir) ? wire_bytes(c, p, dir) : 0;

        if (f->out_at < n)
            rc = net_send(f->out_fd, f->data[f->out % RING], n, &f->out_at, how);
        moved |= rc == 1;
        if (rc == 1 && f->out_at == n) {
            f->out++;
            f->out_at = 0;
        }
    }
    if (rc < 0 && flow_in(g, s, !dir) < 0) /* why it hung up may be there to read */
        return -1;
    return rc < 0 ? group_lost(g, f->out_peer, &g->desc, how) : moved;
}

static int flow_done(const struct chain *c, const struct flow *f)
{
    return f->out == c->npieces && (f->in_fd < 0 || f->head_in == sizeof f->head) &&
           (f->out_fd < 0 || f->head_out == sizeof f->head);
}

/* One look at everything. moved: 1 when bytes went; peer: one that is waited for, -1 when all is
 * done. */
static int step(struct group *g, int *moved, int *peer)
{
    const struct chain *c = g->chain;

    *moved = pairs_progress(g);
    *peer = -1;
    for (int i = 0; i < c->nstages && *moved >= 0; i++)
        for (int d = 0; d < 2; d++) {
            struct stage *s = &c->stage[i];
            struct flow *f = &s->flow[d];
            int in = flow_in(g, s, d), out = in < 0 ? -1 : flow_out(g, s, d);

            if (out < 0)
                return -1;
            *moved |= in | out;
            if (!flow_done(c, f))
                *peer = f->in_fd >= 0 && f->in < c->npieces ? f->in_peer
                        : f->out_fd >= 0                    ? f->out_peer
                                                            : f->in_peer;
        }
    return *moved < 0 ? -1 : 0;
}

/* Before anything is read: a rank that finds a mismatch must have told its own call. */
static int send_heads(struct group *g)
{
    const struct chain *c = g->chain;

    for (int i = 0; i < c->nstages; i++)
        for (int d = 0; d < 2; d++)
            if (flow_out(g, &c->stage[i], d) < 0)
                return -1;
    return 0;
}

int chain_work(struct group *g, const struct coll *op, int64_t lo, int64_t hi)
{
    struct chain *c = g->chain;

    if (!c->nstages)
        return 0;
    c->op = op;
    c->bytes = ds_dtype_bytes(op->dtype);
    c->acc = acc_bytes(op->dtype);
    cut(g, op, lo, hi);
    for (int i = 0; i < c->nstages; i++)
        for (int d = 0; d < 2; d++) {
            struct flow *f = &c->stage[i].flow[d];

            f->in = f->out = 0;
            f->in_at = f->out_at = 0;
            f->head_in = f->head_out = lo ? sizeof f->head : 0; /* once per call */
        }
    return send_heads(g) < 0 ? -1 : group_drive(g, step);
}
