/* What every backend shares: checked calls, their order, counters, the first failure. Inside
 * engine/comm only. */
#ifndef DS_COMM_CORE_H
#define DS_COMM_CORE_H

#include "engine/comm/comm.h"

#include <pthread.h>

struct core;

/* One submitted group, arguments copied. */
struct job {
    struct job *next;
    struct core *core;
    uint64_t ticket;
    int n, cap;
    struct coll *op;
    int64_t *counts; /* [cap][size], what op[].counts points into */
};

/* First member of every backend's struct. A failure is kept and ends everything that comes later.
 */
struct core {
    struct comm base;
    struct boot *boot;
    int64_t timeout_ms;
    int (*group)(struct core *, const struct job *); /* runs one group; -1 after core_fail */
    void (*wake)(struct core *);                     /* after abort was set; may be NULL */

    pthread_mutex_t lock;
    pthread_cond_t turn;
    uint64_t given, served; /* tickets: groups run one at a time, in order of submission */
    struct job *free;
    int failed, aborted; /* atomic */
    struct err failure;  /* under lock, once failed */
    struct comm_counters counters;
};

void core_init(struct core *c, const struct comm_ops *ops, struct boot *boot, struct device *dev,
               int rank, int size, int64_t timeout_ms);
void core_clear(struct core *c);
/* Keeps err if it is the first. Always returns -1. */
int core_fail(struct core *c, const struct err *err);

/* submit, poll, abort, counters of comm_ops. */
int core_submit(struct comm *, const struct coll *, int n, struct ds_stream *, struct err *);
int core_poll(struct comm *, struct err *);
void core_abort(struct comm *);
void core_counters(const struct comm *, struct comm_counters *);

static inline int64_t coll_count(const struct coll *op, int rank)
{
    return op->counts ? op->counts[rank] : op->count;
}
/* Elements of the dense vector: the slices together, or count. */
int64_t coll_total(const struct coll *op, int size);
const char *coll_dtype_name(uint32_t dtype);

/* In process memory made by boot_world? Pointers can be passed then. */
int boot_is_world(const struct boot *b);

#endif
