/* Reductions between two nodes of one rank each: both add.
 *
 * With two ranks a + b is the sum in rank order wherever it is computed, so neither has to add all of it as
 * the end of a chain does (chain.c). A rank sends what it has of the other's part and adds what comes to its
 * own part. Of a reduce-scatter the part is the rank's slice: S/2 bytes on each direction of the link. Of a
 * long all-reduce it is half of it, and the sums are sent back: S bytes on each direction. Of a short one it
 * is all of it: S bytes as well, more to add, but nothing waits for an answer. 16-bit types go as they are.
 *
 * The order on the wire is fixed by the sizes alone: piece i of the other's part, then the sum of the own
 * piece i - AHEAD where sums are sent. In place is fine: what a sum replaces has been sent by then.
 */
#include "engine/comm/group.h"
#include "engine/comm/reduce.h"
#include "engine/base/buf.h"

#include <stdlib.h>
#include <string.h>

#define AHEAD 2
#define PIECES 8 /* of a part that is large enough to overlap */
#define LEAST_BYTES 131072
#define SHORT_BYTES (4 << 20) /* an all-reduce of which both add all */

/* What one rank sends and the other receives. */
struct stream {
    int sender;
    int64_t turn; /* 2 i: piece i of the other's part; 2 i + 1: the sum of the sender's piece i - AHEAD */
    size_t at;    /* bytes of the present piece */
    size_t head_at;
    struct desc head; /* received */
};

struct swap {
    struct stream out, in;
    char *raw; /* the other's data for the own part, one piece */
    /* of the call in progress */
    const struct coll *op;
    struct span part[2]; /* by owner */
    int whole;           /* both parts are all of it */
    int returns;         /* sums are sent back */
    int64_t step;        /* elements of a piece */
    int64_t added;       /* own pieces that are summed */
};

struct swap *swap_create(void)
{
    struct swap *s = xcalloc(1, sizeof *s);

    s->raw = xmalloc(SLOT_BYTES);
    return s;
}

void swap_destroy(struct swap *s)
{
    if (s)
        free(s->raw);
    free(s);
}

static void cut(struct group *g, const struct coll *op)
{
    struct swap *s = g->swap;
    int64_t bytes = (int64_t)ds_dtype_bytes(op->dtype), n = g->first[2], half = n / 2;
    int all = op->op == COLL_ALL_REDUCE;

    s->whole = all && n * bytes <= SHORT_BYTES;
    s->returns = all && !s->whole;
    half -= half % (64 / bytes); /* no cache line is written by both halves' sums */
    s->part[0] = s->part[1] = (struct span){0, n};
    if (s->returns)
        s->part[0].hi = s->part[1].lo = half;
    else if (!s->whole)
        s->part[0].hi = s->part[1].lo = g->first[1];
    s->step = n * bytes / 2 / PIECES;
    s->step = s->step < LEAST_BYTES           ? LEAST_BYTES
              : s->step > (int64_t)SLOT_BYTES ? (int64_t)SLOT_BYTES
                                              : s->step;
    s->step /= bytes;
}

static int64_t pieces(const struct swap *s, int owner)
{
    return (s->part[owner].hi - s->part[owner].lo + s->step - 1) / s->step;
}

/* Moves on to the next turn at which the stream has something; 0: at its end. *owner: whose part, *piece:
 * which of it, *at: its elements. */
static int turn(const struct swap *s, struct stream *f, int *owner, int64_t *piece, struct span *at)
{
    int64_t sums = s->returns ? pieces(s, f->sender) : 0;
    int64_t raws = pieces(s, !f->sender);

    for (;; f->turn++) {
        int64_t i = f->turn / 2, sum = f->turn % 2;

        if (i >= raws && i - AHEAD >= sums)
            return 0;
        *owner = sum ? f->sender : !f->sender;
        *piece = sum ? i - AHEAD : i;
        if (*piece < 0 || *piece >= (sum ? sums : raws))
            continue;
        at->lo = s->part[*owner].lo + *piece * s->step;
        at->hi = at->lo + s->step;
        *at = span_cut(*at, s->part[*owner].lo, s->part[*owner].hi);
        return 1;
    }
}

static void done(struct stream *f)
{
    f->turn++;
    f->at = 0;
}

static void add(struct group *g, struct span at)
{
    struct swap *s = g->swap;
    int64_t lo = at.lo * (int64_t)ds_dtype_bytes(s->op->dtype);
    int me = g->core.base.rank;

    g->src[me] = g->in[0] + lo;
    g->src[!me] = s->raw;
    g->dst[0] = g->out[0] + lo;
    reduce_many(g->dst, 1, g->src, 2, at.hi - at.lo, s->op->reduce, s->op->dtype);
    s->added++;
}

/* 1: moved, 0: not now, -1: failed */
static int swap_in(struct group *g)
{
    struct swap *s = g->swap;
    struct stream *f = &s->in;
    int owner, me = g->core.base.rank, rc = 1, moved = 0;
    size_t bytes = ds_dtype_bytes(s->op->dtype);
    struct span at;
    int64_t piece;
    char how[128];

    while (rc == 1 && f->head_at < sizeof f->head) {
        rc = net_recv(g->link[0], &f->head, sizeof f->head, &f->head_at, how);
        moved |= rc == 1;
        if (f->head_at == sizeof f->head && memcmp(&f->head, &g->desc, sizeof f->head))
            return group_mismatch(g, !me, &f->head);
    }
    while (rc == 1 && turn(s, f, &owner, &piece, &at)) {
        size_t n = (size_t)(at.hi - at.lo) * bytes;

        if (f->at < n) {
            rc = net_recv(g->link[0], owner == me ? s->raw : g->out[0] + at.lo * (int64_t)bytes, n, &f->at,
                          how);
            moved |= rc == 1;
            continue;
        }
        if (s->whole && s->out.turn <= f->turn)
            break; /* the sum would replace what is not sent yet; the other reads it, so it will be */
        if (owner == me)
            add(g, at);
        done(f);
    }
    return rc < 0 ? group_lost(g, !me, &g->desc, how) : moved;
}

static int swap_out(struct group *g)
{
    struct swap *s = g->swap;
    struct stream *f = &s->out;
    int owner, me = g->core.base.rank, rc = 1, moved = 0;
    size_t bytes = ds_dtype_bytes(s->op->dtype);
    struct span at;
    int64_t piece;
    char how[128];

    while (rc == 1 && f->head_at < sizeof g->desc) {
        rc = net_send(g->link[0], &g->desc, sizeof g->desc, &f->head_at, how);
        moved |= rc == 1;
    }
    while (rc == 1 && turn(s, f, &owner, &piece, &at)) {
        size_t n = (size_t)(at.hi - at.lo) * bytes;
        char *from = (owner == me ? g->out[0] : g->in[0]) + at.lo * (int64_t)bytes;

        if (owner == me && piece >= s->added)
            break;
        rc = net_send(g->link[0], from, n, &f->at, how);
        moved |= rc == 1;
        if (f->at == n)
            done(f);
    }
    if (rc < 0 && swap_in(g) < 0) /* why it hung up may be there to read */
        return -1;
    return rc < 0 ? group_lost(g, !me, &g->desc, how) : moved;
}

static int step(struct group *g, int *moved, int *peer)
{
    struct swap *s = g->swap;
    int in, out, owner;
    struct span at;
    int64_t piece;

    *moved = pairs_progress(g);
    in = *moved < 0 ? -1 : swap_in(g);
    out = in < 0 ? -1 : swap_out(g);
    if (out < 0)
        return -1;
    *moved |= in | out;
    *peer = turn(s, &s->in, &owner, &piece, &at) || turn(s, &s->out, &owner, &piece, &at) ||
                    s->in.head_at < sizeof s->in.head || s->out.head_at < sizeof s->in.head
                ? !g->core.base.rank
                : -1;
    return 0;
}

int swap_work(struct group *g, const struct coll *op)
{
    struct swap *s = g->swap;

    s->op = op;
    s->added = 0;
    cut(g, op);
    s->out = (struct stream){.sender = g->core.base.rank};
    s->in = (struct stream){.sender = !g->core.base.rank};
    if (swap_out(g) < 0) /* before anything is read: one that finds a mismatch must have told its own call */
        return -1;
    return group_drive(g, step);
}
