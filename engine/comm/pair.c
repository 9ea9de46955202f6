/* Transfers between two ranks: send, recv, and all-to-all as both with everyone.
 *
 * A group's transfers make progress in turn, those of one pair and direction one after the other.
 * Inside a node the sender posts where its data lies and the receiver copies it, through the pair's
 * two slots when it cannot read it in place; between nodes the data follows a head with the call's
 * description. A send is over when the receiver has the data (node) or the kernel has it (TCP).
 */
#include "engine/comm/group.h"
#include "engine/base/buf.h"

#include <stdlib.h>
#include <string.h>

#define COPY_STEP ((size_t)1 << 20) /* between looks at the other transfers */

struct transfer {
    int peer, recv, done;
    char *data;
    size_t bytes, at;
    struct desc desc;
    size_t head_at;   /* TCP: of desc sent or received */
    struct desc head; /* TCP: received */
    struct ref ref;   /* node, receiver: where the sender has it */
    int posted;
    uint64_t slot_base; /* filled or drained of the mail when this transfer began */
};

struct pairs {
    struct transfer *t;
    int n, cap, active;
    uint64_t *sent, *received; /* [size] transfers so far */
};

struct pairs *pairs_create(struct group *g)
{
    struct pairs *p = xcalloc(1, sizeof *p);

    p->sent = xcalloc((size_t)g->core.base.size, sizeof *p->sent);
    p->received = xcalloc((size_t)g->core.base.size, sizeof *p->received);
    return p;
}

void pairs_destroy(struct pairs *p)
{
    if (!p)
        return;
    free(p->t);
    free(p->sent);
    free(p->received);
    free(p);
}

void pairs_begin(struct group *g)
{
    g->pairs->n = g->pairs->active = 0;
}

static void add(struct group *g, const struct coll *op, int peer, int recv, void *data,
                int64_t count)
{
    struct pairs *p = g->pairs;
    struct transfer *t;

    ARRAY_GROW(p->t, p->n, p->cap);
    t = &p->t[p->n++];
    p->active++;
    *t = (struct transfer){.peer = peer, .recv = recv, .data = data};
    t->bytes = (size_t)count * ds_dtype_bytes(op->dtype);
    t->desc = (struct desc){.op = op->op == COLL_ALL_TO_ALL ? COLL_ALL_TO_ALL : COLL_SEND,
                            .dtype = op->dtype,
                            .count = count,
                            .seq = recv ? ++p->received[peer] : ++p->sent[peer]};
}

void pairs_add(struct group *g, const struct coll *op)
{
    int size = g->core.base.size, me = g->core.base.rank;
    size_t bytes = ds_dtype_bytes(op->dtype), at = 0;

    if (op->op != COLL_ALL_TO_ALL) {
        int recv = op->op == COLL_RECV;

        add(g, op, op->root, recv, recv ? op->recv : (void *)(uintptr_t)op->send, op->count);
        return;
    }
    for (int r = 0; r < size; r++) {
        int64_t n = coll_count(op, r);
        char *from = (char *)(uintptr_t)op->send + at, *to = (char *)op->recv + at;

        if (r != me) {
            add(g, op, r, 0, from, n);
            add(g, op, r, 1, to, n);
        } else if (from != to && n) {
            memcpy(to, from, (size_t)n * bytes);
        }
        at += (size_t)n * bytes;
    }
}

static int mismatch(struct group *g, const struct transfer *t, const struct desc *theirs)
{
    struct desc own = t->desc;
    char a[160], b[160];

    if (own.op == COLL_SEND)
        own.op = COLL_RECV;
    desc_text(&own, a);
    desc_text(theirs, b);
    return group_fail(g, ERR_JOB_INTERNAL,
                      "ranks disagree on a transfer: rank %d calls %s, rank %d calls %s",
                      g->core.boot->rank, a, g->world[t->peer], b);
}

static void finish(struct group *g, struct transfer *t)
{
    t->done = 1;
    g->pairs->active--;
}

/* Copies into what is free of the two slots. */
static int fill(struct group *g, struct transfer *t, struct mail *m, char *slot)
{
    uint64_t filled = m->filled - t->slot_base;
    uint64_t room = 2 * PAIR_BYTES - (m->filled - __atomic_load_n(&m->drained, __ATOMIC_SEQ_CST));
    size_t at = m->filled % (2 * PAIR_BYTES), n = t->bytes - (size_t)filled;

    n = n < room ? n : room;
    n = n < 2 * PAIR_BYTES - at ? n : 2 * PAIR_BYTES - at;
    n = n < PAIR_BYTES ? n : PAIR_BYTES;
    if (!n)
        return 0;
    memcpy(slot + at, t->data + filled, n);
    __atomic_store_n(&m->filled, m->filled + n, __ATOMIC_SEQ_CST);
    group_ring_one(g, g->seat_of[t->peer]);
    return 1;
}

static int send_local(struct group *g, struct transfer *t)
{
    int to = g->seat_of[t->peer], moved = 0;
    struct mail *m = region_mail(g, g->seat, to);

    if (!t->posted) {
        m->desc = t->desc;
        m->ref = ref_of(g, t->data, t->bytes);
        t->ref = m->ref;
        t->slot_base = m->filled;
        t->posted = moved = 1;
        __atomic_store_n(&m->posted, t->desc.seq, __ATOMIC_SEQ_CST);
        group_ring_one(g, to);
    }
    if (t->ref.kind == REF_STAGED)
        moved |= fill(g, t, m, region_pair_slot(g, g->seat, to));
    if (__atomic_load_n(&m->taken, __ATOMIC_SEQ_CST) >= t->desc.seq) {
        finish(g, t);
        moved = 1;
    }
    return moved;
}

/* Copies out of the slots. */
static int drain(struct group *g, struct transfer *t, struct mail *m, const char *slot)
{
    uint64_t there = __atomic_load_n(&m->filled, __ATOMIC_SEQ_CST) - m->drained;
    size_t at = m->drained % (2 * PAIR_BYTES), n = t->bytes - t->at;

    n = n < there ? n : there;
    n = n < 2 * PAIR_BYTES - at ? n : 2 * PAIR_BYTES - at;
    if (!n)
        return 0;
    memcpy(t->data + t->at, slot + at, n);
    t->at += n;
    __atomic_store_n(&m->drained, m->drained + n, __ATOMIC_SEQ_CST);
    group_ring_one(g, g->seat_of[t->peer]);
    return 1;
}

static int recv_local(struct group *g, struct transfer *t)
{
    int from = g->seat_of[t->peer], moved = 0;
    struct mail *m = region_mail(g, from, g->seat);

    if (__atomic_load_n(&m->posted, __ATOMIC_SEQ_CST) < t->desc.seq)
        return 0;
    if (!t->posted) {
        if (memcmp(&m->desc, &t->desc, sizeof t->desc))
            return mismatch(g, t, &m->desc);
        t->ref = m->ref;
        t->posted = 1;
    }
    if (t->ref.kind == REF_STAGED) {
        moved = drain(g, t, m, region_pair_slot(g, from, g->seat));
    } else if (t->at < t->bytes) {
        size_t n = t->bytes - t->at < COPY_STEP ? t->bytes - t->at : COPY_STEP;

        memcpy(t->data + t->at, ref_at(g, t->ref, t->peer) + t->at, n);
        t->at += n;
        moved = 1;
    }
    if (t->at == t->bytes) {
        __atomic_store_n(&m->taken, t->desc.seq, __ATOMIC_SEQ_CST);
        group_ring_one(g, from);
        finish(g, t);
        moved = 1;
    }
    return moved;
}

static int over_net(struct group *g, struct transfer *t)
{
    int fd = g->mesh[t->peer], rc = 1, moved = 0;
    char how[128];

    while (rc == 1 && t->head_at < sizeof t->desc) {
        rc = t->recv ? net_recv(fd, &t->head, sizeof t->head, &t->head_at, how)
                     : net_send(fd, &t->desc, sizeof t->desc, &t->head_at, how);
        moved |= rc == 1;
        if (t->recv && t->head_at == sizeof t->head && memcmp(&t->head, &t->desc, sizeof t->desc))
            return mismatch(g, t, &t->head);
    }
    while (rc == 1 && t->at < t->bytes) {
        rc = t->recv ? net_recv(fd, t->data, t->bytes, &t->at, how)
                     : net_send(fd, t->data, t->bytes, &t->at, how);
        moved |= rc == 1;
    }
    if (rc < 0)
        return group_lost(g, t->peer, &t->desc, how);
    if (t->head_at == sizeof t->desc && t->at == t->bytes)
        finish(g, t);
    return moved;
}

/* Is an earlier transfer of the same pair and direction under way? */
static int behind(const struct pairs *p, int i)
{
    for (int k = 0; k < i; k++)
        if (!p->t[k].done && p->t[k].peer == p->t[i].peer && p->t[k].recv == p->t[i].recv)
            return 1;
    return 0;
}

int pairs_progress(struct group *g)
{
    struct pairs *p = g->pairs;
    int moved = 0;

    for (int i = 0; p->active && i < p->n; i++) {
        struct transfer *t = &p->t[i];
        int rc;

        if (t->done || behind(p, i))
            continue;
        if (g->seat_of[t->peer] < 0)
            rc = over_net(g, t);
        else
            rc = t->recv ? recv_local(g, t) : send_local(g, t);
        if (rc < 0)
            return -1;
        moved |= rc;
    }
    return moved;
}

static const struct transfer *first_pending(const struct pairs *p)
{
    for (int i = 0; i < p->n; i++)
        if (!p->t[i].done)
            return &p->t[i];
    return NULL;
}

int pairs_pending(const struct group *g)
{
    const struct pairs *p = g->pairs;
    int on = 0;

    for (int i = 0; p->active && i < p->n; i++)
        if (!p->t[i].done)
            on |= g->seat_of[p->t[i].peer] < 0 ? WAIT_NET : WAIT_LOCAL;
    return on;
}

int pairs_finish(struct group *g)
{
    const struct transfer *t = first_pending(g->pairs);
    struct waiting w;
    int rc = 0;

    if (!t)
        return 0;
    wait_begin(g, &w, &t->desc, t->peer);
    while (rc == 0 && (t = first_pending(g->pairs))) {
        int moved = pairs_progress(g);

        if (moved < 0) {
            rc = -1;
        } else if (moved) {
            wait_moved(g, &w);
        } else {
            w.peer = t->peer;
            w.what = t->desc;
            w.what.op = t->recv && t->desc.op == COLL_SEND ? COLL_RECV : t->desc.op;
            rc = wait_idle(g, &w, pairs_pending(g));
        }
    }
    wait_end(g, &w);
    return rc;
}
