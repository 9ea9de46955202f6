/* What every backend shares: see core.h.
 *
 * Invariants: groups of one communicator run one at a time in the order of submission, whatever
 * their streams; after the first failure none runs. A job's memory is kept for reuse.
 */
#include "engine/comm/core.h"
#include "engine/base/buf.h"

#include <stdlib.h>
#include <string.h>

static const char *const op_names[COLL_OPS] = {
    [COLL_BARRIER] = "barrier",
    [COLL_ALL_REDUCE] = "all_reduce",
    [COLL_ALL_GATHER] = "all_gather",
    [COLL_REDUCE_SCATTER] = "reduce_scatter",
    [COLL_BROADCAST] = "broadcast",
    [COLL_SEND] = "send",
    [COLL_RECV] = "recv",
    [COLL_ALL_TO_ALL] = "all_to_all",
};

static const char *const dtype_names[DS_DTYPES] = {
    [DS_F32] = "f32", [DS_BF16] = "bf16", [DS_F16] = "f16", [DS_F64] = "f64",
    [DS_I32] = "i32", [DS_I64] = "i64",   [DS_U8] = "u8",
};

const char *coll_name(uint32_t op)
{
    return op < COLL_OPS ? op_names[op] : "unknown operation";
}

const char *coll_dtype_name(uint32_t dtype)
{
    return dtype < DS_DTYPES ? dtype_names[dtype] : "unknown type";
}

int64_t coll_total(const struct coll *op, int size)
{
    int64_t total = 0;

    if (op->op == COLL_BARRIER)
        return 0;
    if (op->op != COLL_REDUCE_SCATTER && op->op != COLL_ALL_GATHER && op->op != COLL_ALL_TO_ALL)
        return op->count;
    for (int r = 0; r < size; r++)
        total += coll_count(op, r);
    return total;
}

void core_init(struct core *c, const struct comm_ops *ops, struct boot *boot, struct device *dev,
               int rank, int size, int64_t timeout_ms)
{
    c->base = (struct comm){.ops = ops, .device = dev, .rank = rank, .size = size};
    c->boot = boot;
    c->timeout_ms = timeout_ms > 0 ? timeout_ms : 600000;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->turn, NULL);
}

void core_clear(struct core *c)
{
    while (c->free) {
        struct job *j = c->free;

        c->free = j->next;
        free(j->op);
        free(j->counts);
        free(j);
    }
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->turn);
}

int core_fail(struct core *c, const struct err *err)
{
    pthread_mutex_lock(&c->lock);
    if (!c->failed) {
        c->failure = *err;
        __atomic_store_n(&c->failed, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&c->lock);
    return -1;
}

static int check_counts(const struct coll *op, int size)
{
    if (!op->counts)
        return op->count < 0 ? -1 : 0;
    for (int r = 0; r < size; r++)
        if (op->counts[r] < 0)
            return -1;
    return 0;
}

static int uses_send(const struct coll *op)
{
    return op->op == COLL_REDUCE_SCATTER || op->op == COLL_ALL_GATHER || op->op == COLL_SEND ||
           op->op == COLL_ALL_TO_ALL || op->op == COLL_ALL_REDUCE;
}

static int check(const struct core *c, const struct coll *op, struct err *err)
{
    int size = c->base.size, rank = c->base.rank;
    const char *wrong = NULL;

    if ((unsigned)op->op >= COLL_OPS)
        wrong = "no such operation";
    else if (op->op == COLL_BARRIER)
        return 0;
    else if ((unsigned)op->dtype >= DS_DTYPES || (unsigned)op->class >= CLASSES)
        wrong = "no such type or class";
    else if (check_counts(op, size))
        wrong = "a count is negative";
    else if ((op->op == COLL_ALL_REDUCE || op->op == COLL_REDUCE_SCATTER) &&
             (op->dtype == DS_I32 || (unsigned)op->reduce > COLL_MAX))
        wrong = "this type cannot be reduced";
    else if ((op->op == COLL_BROADCAST || op->op == COLL_SEND || op->op == COLL_RECV) &&
             (op->root < 0 || op->root >= size))
        wrong = "the root or peer is not a rank of this group";
    else if ((op->op == COLL_SEND || op->op == COLL_RECV) && op->root == rank)
        wrong = "a rank cannot send to itself";
    else if (uses_send(op) && !op->send && coll_total(op, size) > 0)
        wrong = "send is NULL";
    else if (op->op != COLL_SEND && !op->recv && coll_total(op, size) > 0)
        wrong = "recv is NULL";
    if (!wrong)
        return 0;
    return err_set(err, ERR_JOB_INTERNAL, "%s of rank %d of %d is a wrong call: %s",
                   coll_name(op->op), rank, size, wrong);
}

/* Bytes as if every reduce-scatter and all-gather were a direct exchange. */
static void count_bytes(struct core *c, const struct coll *op)
{
    uint64_t sent = 0, received = 0, bytes = ds_dtype_bytes(op->dtype);
    int n = c->base.size, me = c->base.rank;
    uint64_t others = (uint64_t)(n - 1), total = (uint64_t)coll_total(op, n), mine = 0;

    if (op->op == COLL_BARRIER)
        bytes = 0;
    else if (op->op == COLL_ALL_REDUCE)
        mine = total * (uint64_t)(me + 1) / (uint64_t)n - total * (uint64_t)me / (uint64_t)n;
    else
        mine = (uint64_t)coll_count(op, me);
    switch (op->op) {
    case COLL_ALL_REDUCE:
        sent = received = total - mine + others * mine;
        break;
    case COLL_REDUCE_SCATTER:
        sent = total - mine;
        received = others * mine;
        break;
    case COLL_ALL_GATHER:
        sent = others * mine;
        received = total - mine;
        break;
    case COLL_ALL_TO_ALL:
        sent = received = total - mine;
        break;
    case COLL_BROADCAST:
        *(op->root == me ? &sent : &received) = op->root == me ? others * total : total;
        break;
    case COLL_SEND:
        sent = total;
        break;
    case COLL_RECV:
        received = total;
        break;
    default:
        break;
    }
    c->counters.calls[op->op]++;
    c->counters.sent[op->op][op->class] += sent * bytes;
    c->counters.received[op->op][op->class] += received * bytes;
}

/* Under lock. */
static struct job *job_take(struct core *c, int n)
{
    struct job *j = c->free;

    if (j)
        c->free = j->next;
    else
        j = xcalloc(1, sizeof *j);
    if (j->cap < n) {
        j->cap = n;
        j->op = xrealloc(j->op, (size_t)n * sizeof *j->op);
        j->counts = xrealloc(j->counts, (size_t)n * (size_t)c->base.size * sizeof *j->counts);
    }
    return j;
}

static void job_run(void *arg)
{
    struct job *j = arg;
    struct core *c = j->core;

    pthread_mutex_lock(&c->lock);
    while (c->served != j->ticket)
        pthread_cond_wait(&c->turn, &c->lock);
    pthread_mutex_unlock(&c->lock);
    if (!__atomic_load_n(&c->failed, __ATOMIC_ACQUIRE))
        c->group(c, j);
    pthread_mutex_lock(&c->lock);
    c->served++;
    j->next = c->free;
    c->free = j;
    pthread_cond_broadcast(&c->turn);
    pthread_mutex_unlock(&c->lock);
}

int core_submit(struct comm *comm, const struct coll *op, int n, struct ds_stream *stream,
                struct err *err)
{
    struct core *c = (struct core *)comm;
    size_t size = (size_t)comm->size;
    struct job *j;

    for (int i = 0; i < n; i++)
        if (check(c, &op[i], err))
            return -1;
    if (core_poll(comm, err))
        return -1;
    pthread_mutex_lock(&c->lock);
    j = job_take(c, n);
    j->core = c;
    j->n = n;
    for (int i = 0; i < n; i++) {
        j->op[i] = op[i];
        if (op[i].counts && op[i].op != COLL_BARRIER) {
            memcpy(j->counts + (size_t)i * size, op[i].counts, size * sizeof *j->counts);
            j->op[i].counts = j->counts + (size_t)i * size;
        } else {
            j->op[i].counts = NULL;
        }
        count_bytes(c, &j->op[i]);
    }
    j->ticket = c->given++;
    pthread_mutex_unlock(&c->lock);
    comm->device->ops->run(stream, job_run, j);
    return 0;
}

int core_poll(struct comm *comm, struct err *err)
{
    struct core *c = (struct core *)comm;

    if (!__atomic_load_n(&c->failed, __ATOMIC_ACQUIRE))
        return 0;
    if (err)
        *err = c->failure; /* never changes once failed is set */
    return -1;
}

void core_abort(struct comm *comm)
{
    struct core *c = (struct core *)comm;

    __atomic_store_n(&c->aborted, 1, __ATOMIC_SEQ_CST);
    if (c->wake)
        c->wake(c);
}

void core_counters(const struct comm *comm, struct comm_counters *out)
{
    struct core *c = (struct core *)comm;

    pthread_mutex_lock(&c->lock);
    *out = c->counters;
    pthread_mutex_unlock(&c->lock);
}
