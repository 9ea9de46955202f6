/* Collectives: groups of operations are submitted to a stream; completion is seen only by an event.
 *
 * Backends: self (one rank), thread (N ranks in one process, for tests), host (shared memory inside
 * a machine, TCP between machines). Every backend gives bit-identical results: reductions add
 * contributions in rank order in fp32 (f64 for f64), whatever the wire type; each contribution is
 * rounded once.
 *
 * The CPU backends send {sequence number, digest of op, counts, type} ahead of the data: a rank out
 * of order is ERR_JOB_INTERNAL naming both calls and not a hang. Every wait watches the abort word
 * and the deadline, and says which peer it waited for (ERR_RANK_PEER, boot->peer_lost).
 */
#ifndef DS_COMM_H
#define DS_COMM_H

#include "engine/base/boot.h"
#include "engine/base/err.h"
#include "engine/device/device.h"
#include "kernels/kernels.h"

enum coll_op {
    COLL_BARRIER,
    COLL_ALL_REDUCE,     /* buf (count) in place in recv; send may equal recv */
    COLL_REDUCE_SCATTER, /* send: world slices, counts[r] elements each, dense; recv: own slice,
                          * which may be its place in send */
    COLL_ALL_GATHER, /* send: own slice; recv: world slices dense. send may be its place in recv */
    COLL_BROADCAST,  /* recv (count), from root's recv */
    COLL_SEND,
    COLL_RECV,       /* count elements to or from root (the peer) */
    COLL_ALL_TO_ALL, /* counts[r] elements of send (dense) to r; the same counts come back */
    COLL_OPS
};
enum coll_reduce { COLL_SUM, COLL_MAX };

/* What the bytes are for; counted per class. CONTROL is loss, norm, flags, barriers. */
enum coll_class { CLASS_GRAD, CLASS_PARAM, CLASS_ACT, CLASS_STATE, CLASS_CONTROL, CLASSES };

struct coll {
    enum coll_op op;
    const void *send;
    void *recv;
    int64_t count;         /* elements; unused where counts is */
    const int64_t *counts; /* [world]; NULL: count elements from or to each rank */
    enum ds_dtype dtype;   /* of send and recv and on the wire (f32, bf16, f16, f64, i64, u8) */
    enum coll_reduce reduce;
    enum coll_class class;
    int root;
};

struct comm;

struct comm_counters {
    uint64_t calls[COLL_OPS];
    uint64_t sent[COLL_OPS][CLASSES],
        received[COLL_OPS]
                [CLASSES]; /* payload bytes to/from other ranks,
                            * as the algorithm of ENGINE 5 defines them, shared memory included */
};

struct comm_ops {
    const char *name;
    int (*probe)(const struct boot *, char why[256]);
    /* The group of all ranks. Collective. timeout_ms bounds every wait; 0: 600 s. */
    int (*create)(struct comm **, struct boot *, struct device *, int64_t timeout_ms, struct err *);
    /* The group of ranks with the same color, ordered by rank. Collective over parent. color < 0:
     * *out is NULL. */
    int (*split)(struct comm **out, struct comm *parent, int color, struct err *);
    /* Memory that peers of this machine can read in place: collectives on it copy nothing extra.
     * Collective, same bytes on every rank. Freed with the communicator. Counted as MEM class
     * given. */
    void *(*alloc)(struct comm *, size_t bytes, enum mem_class, struct err *);
    /* n operations that progress together, after what stream holds now. Arguments are copied,
     * buffers belong to the call until an event recorded on the stream afterwards is reached. 0, or
     * -1 when the call is wrong or the communicator has failed. */
    int (*submit)(struct comm *, const struct coll *, int n, struct ds_stream *, struct err *);
    /* 0 while healthy; -1 and the first failure. Checked after an event was reached. */
    int (*poll)(struct comm *, struct err *);
    void (*abort)(struct comm *);   /* every wait in it ends; any thread */
    void (*destroy)(struct comm *); /* not collective; NULL is fine */
    void (*counters)(const struct comm *, struct comm_counters *);
};

/* "all_reduce" ... */
const char *coll_name(uint32_t op);

/* First member of every backend's struct. */
struct comm {
    const struct comm_ops *ops;
    struct device *device;
    int rank, size;
};

extern const struct comm_ops comm_self, comm_thread, comm_host;
extern const struct comm_ops *const comms[]; /* in order of preference, NULL at the end */

/* The first backend whose probe accepts. */
int comm_create(struct comm **, struct boot *, struct device *, int64_t timeout_ms, struct err *);

/* Submit one operation to the compute stream, wait for it, poll. Operations of one communicator are
 * done in the order in which they were submitted, whatever their streams. */
int comm_run(struct comm *, const struct coll *, struct err *);

/* A world of n boots in this process for comm_thread (and for host in tests): boot[i] is rank i.
 * nodes > 1 spreads the ranks over pretended nodes, whose address is 127.0.0.1: blocks of
 * consecutive ranks, or as node_of[n] says. It lies in shared memory: processes forked afterwards
 * are in the same world. boot_world_abort sets the abort word of every rank, as the agent does. */
struct boot_world;
struct boot_world *boot_world_create(int n, int nodes);
struct boot_world *boot_world_create_on(int n, const int *node_of);
struct boot *boot_world_rank(struct boot_world *, int rank);
void boot_world_abort(struct boot_world *);
void boot_world_destroy(struct boot_world *);

#endif
