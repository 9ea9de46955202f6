/* The group of backends thread and host: ranks of one node meet in a shared region, nodes over TCP.
 * Inside engine/comm only.
 *
 * wait.c    waiting, failing, the sync of a node's ranks
 * region.c  the shared region, memory that peers can read, references into it
 * local.c   collectives as seen from one rank, and their work inside a node
 * chain.c   their work between nodes
 * swap.c    reductions between two nodes of one rank each
 * pair.c    transfers between two ranks: send, recv, all-to-all
 * net.c     connections between nodes
 * group.c   comm_thread and comm_host
 */
#ifndef DS_COMM_GROUP_H
#define DS_COMM_GROUP_H

#include "engine/comm/core.h"

#define SLOT_BYTES ((size_t)512 << 10) /* of data that peers cannot read in place */
#define NET_SLOTS 8                    /* slots of one rank when its group has several nodes */
#define PAIR_BYTES ((size_t)256 << 10) /* one of the two slots of a pair of ranks */
#define LINE 128                       /* two cache lines: the prefetcher takes pairs */

/* What a call is: enough to compare and to name it. */
struct desc {
    uint32_t op, dtype, reduce;
    int32_t root;
    int64_t count;
    uint64_t hash; /* of counts[] */
    uint64_t seq;
};

enum ref_kind { REF_NONE, REF_STAGED, REF_POINTER, REF_SEGMENT };
struct ref {
    uint32_t kind;
    uint64_t segment; /* id */
    uint64_t at;      /* the pointer, or the offset in the segment */
};

/* Written by one rank of the node, read by all. Fields are atomic; desc and refs are published by
 * arrived. */
struct seat {
    _Alignas(LINE) uint64_t arrived; /* syncs this rank has reached */
    _Alignas(LINE) uint32_t bell;    /* futex: others ring it when sleeping is set */
    uint32_t sleeping;
    int32_t pid;
    uint32_t doing_op; /* what it waits in: for messages */
    uint64_t doing_seq;
    _Alignas(LINE) struct desc desc[2]; /* by parity of seq */
    struct ref in[2], out[2];
};

/* One direction between two ranks of a node. The sender writes posted and filled, the receiver
 * taken. */
struct mail {
    _Alignas(LINE) uint64_t posted; /* transfers posted; desc and ref belong to the latest */
    uint64_t filled;                /* bytes put in the slots, over all transfers */
    struct desc desc;
    struct ref ref;
    _Alignas(LINE) uint64_t taken; /* transfers finished */
    uint64_t drained;              /* bytes taken out of the slots */
};

struct region {
    uint32_t ranks, failed; /* failed: 0, 1 being written, 2 */
    uint32_t fail_code;
    int32_t fail_rank;
    char fail_text[ERR_TEXT_BYTES];
    uint32_t users; /* thread: who still holds it */
    size_t bytes;
    struct seat seat[]; /* [ranks], then mail[ranks][ranks], then staging */
};

/* A segment that every rank of a node has made with one alloc, mapped here. */
struct segment {
    uint64_t id;
    const struct group *owner; /* freed with it */
    size_t bytes;
    enum mem_class class;
    int private; /* from the device: no peer maps it */
    char **base; /* [world of the table], NULL where not of this node */
};
/* One table per process and rank, shared by a communicator and those split from it. */
struct segments {
    pthread_mutex_t lock;
    int users, n, cap, world, rank;
    struct segment *segment;
    struct device *device;
};

/* One part of a chain: consecutive ranks [first, end) of the group on one node. */
struct run {
    int first, end, node;
};

struct chain; /* chain.c */
struct swap;  /* swap.c */
struct pairs; /* pair.c */

struct group {
    struct core core;
    char id[160];  /* in keys: unique in the epoch */
    uint64_t hash; /* of id */
    int thread;    /* pointers of peers can be read as they are */
    int splits, allocs;
    int *world;       /* [size] rank in boot of every member */
    int *node_of;     /* [size] */
    int nlocal, seat; /* members of this node, own index among them */
    int *local;       /* [nlocal] their ranks in the group, ascending */
    int *seat_of;     /* [size] index in local, -1 elsewhere */
    int *seen;        /* [nlocal] its process was there once: in this PID namespace, then */
    struct region *region;
    char *staging; /* in the region */
    struct segments *segments;
    size_t counted; /* bytes of MEM_COMM: the own part of the region, buffers for the network */
    uint64_t seq;     /* of collectives */
    uint64_t arrived; /* own syncs */

    int nruns, lanes; /* runs > 1: several nodes */
    struct run *run;
    int epoll; /* -1: one node */
    int *mesh; /* [size] sockets to ranks of other nodes, -1 */
    int *link; /* [(nruns-1) * lanes] sockets of the chain that this rank holds, -1 */
    struct chain *chain;
    struct swap *swap; /* NULL: not two nodes of one rank */
    struct pairs *pairs;

    /* the collective in progress */
    struct desc desc;
    int64_t *first;   /* [size+1] slices of the dense vector */
    char **in, **out; /* [nlocal] virtual start of the dense vector in each rank's memory */
    struct ref *in_ref, *out_ref;
    const void **src; /* [size] scratch for reduce_* */
    void **dst;
};

/* --- wait.c --- */
enum { WAIT_LOCAL = 1, WAIT_NET = 2 };
struct waiting {
    struct desc what;
    int peer; /* rank in the group, -1 */
    int64_t begin_ns, deadline_ns, checked_ns;
    uint32_t bell;
    int armed, slow;
};
void wait_begin(struct group *g, struct waiting *w, const struct desc *what, int peer);
/* Called over and over while the condition does not hold; yields, later sleeps. -1: failed. */
int wait_idle(struct group *g, struct waiting *w, int on);
void wait_moved(struct group *g, struct waiting *w); /* progress: the deadline starts anew */
void wait_end(struct group *g, struct waiting *w);
/* Tells every rank of the node; the first failure counts. Returns -1. */
int group_fail(struct group *g, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A peer is gone: says so to the front end too. Returns -1. */
int group_lost(struct group *g, int peer, const struct desc *what, const char *how);
void group_ring(struct group *g); /* wakes sleeping ranks of the node */
void group_ring_one(struct group *g, int seat);
void group_wake(struct core *c); /* core.wake */
int group_sync(struct group *g); /* all ranks of the node have called it */
void group_see(struct group *g); /* after the first sync: which processes can be watched */
void desc_text(const struct desc *d, char out[160]);
/* A peer (its rank in the group) makes another call than this rank: names both. Returns -1. */
int group_mismatch(struct group *g, int peer, const struct desc *theirs);
/* Calls step over and over, waiting in between, until it says -1 in peer: nothing is waited for any more.
 * step: one look at everything; moved: 1 when bytes went; peer: one that is waited for. 0 or -1. */
int group_drive(struct group *g, int (*step)(struct group *g, int *moved, int *peer));

/* --- region.c --- */
size_t region_bytes(int ranks);
size_t region_part(const struct group *g); /* of it what this rank's calls may touch */
int region_open(struct group *g, struct err *err);
void region_close(struct group *g);
struct mail *region_mail(struct group *g, int from_seat, int to_seat);
char *region_slot(struct group *g, int seat, int out);     /* NET_SLOTS * SLOT_BYTES */
char *region_pair_slot(struct group *g, int from, int to); /* 2 * PAIR_BYTES */
struct segments *segments_create(int world, int rank, struct device *dev);
void segments_release(struct segments *s, const struct group *g);
void *group_alloc(struct comm *, size_t bytes, enum mem_class, struct err *);
struct ref ref_of(struct group *g, const void *p, size_t bytes);
/* Where rank (of the group, same node) has what ref says; NULL for none and staged. */
char *ref_at(struct group *g, struct ref r, int rank);

/* --- local.c --- */
int collective(struct group *g, const struct coll *op);
/* elements of the dense vector that a rank gives and wants */
struct span {
    int64_t lo, hi;
};
struct span span_cut(struct span a, int64_t lo, int64_t hi);
struct span coll_in(const struct group *g, const struct coll *op, int rank);
struct span coll_out(const struct group *g, const struct coll *op, int rank);
static inline int coll_reduces(const struct coll *op)
{
    return op->op == COLL_ALL_REDUCE || op->op == COLL_REDUCE_SCATTER;
}

/* --- chain.c --- */
struct chain *chain_create(struct group *g);
void chain_destroy(struct chain *c);
size_t chain_bytes(const struct chain *c); /* of its buffers; NULL: 0 */
/* The part of [lo, hi) that crosses nodes. */
int chain_work(struct group *g, const struct coll *op, int64_t lo, int64_t hi);

/* --- swap.c --- */
struct swap *swap_create(void);
void swap_destroy(struct swap *s);
/* A whole reduction: all memory is readable where a node has one rank. */
int swap_work(struct group *g, const struct coll *op);

/* --- pair.c --- */
struct pairs *pairs_create(struct group *g);
void pairs_destroy(struct pairs *p);
void pairs_begin(struct group *g);
void pairs_add(struct group *g, const struct coll *op);
/* 1: something moved, 0: nothing, -1 failed */
int pairs_progress(struct group *g);
int pairs_pending(const struct group *g); /* WAIT_* that the rest waits on; 0: all done */
int pairs_finish(struct group *g);

/* --- net.c --- */
int net_open(struct group *g, struct err *err);
void net_close(struct group *g);
void net_hang_up(struct group *g); /* after a failure: peers see the end once they have read */
/* 1: bytes moved (*at advanced), 0: not now, -1: gone (how[] says). */
int net_send(int fd, const void *data, size_t n, size_t *at, char how[128]);
int net_recv(int fd, void *data, size_t n, size_t *at, char how[128]);
/* Which rank holds the end of link (between run and run + 1) of a lane. */
int lane_worker(const struct group *g, int run, int lane);

/* --- auth.c --- */
void auth_nonce(uint8_t out[32]);
/* A MAC of data under the job's key. */
void auth_sign(const uint8_t key[32], const void *data, size_t n, uint8_t out[32]);
int auth_equal(const uint8_t a[32], const uint8_t b[32]);

#endif
