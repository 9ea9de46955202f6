/* What a communicator needs from the world before it can talk: a key space, memory shared inside a
 * machine, and the flag that ends every wait. The agent's socket implements it (link.h); tests have one
 * in memory. All calls are thread-safe; every wait ends at deadline_ms (clock_ms time) or when the abort
 * word becomes nonzero (ERR_RANK_ABORT). */
#ifndef DS_BASE_BOOT_H
#define DS_BASE_BOOT_H

#include "engine/base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum rank_phase { PHASE_START, PHASE_DATA, PHASE_FORWARD, PHASE_BACKWARD, PHASE_REDUCE, PHASE_UPDATE,
                  PHASE_EVAL, PHASE_SAVE, PHASE_DONE };

/* One page per rank, shared with its agent and readable after the rank was killed. The agent writes
 * abort and stop, the rank the rest. All fields are accessed atomically (__atomic, relaxed unless
 * stated). */
struct rank_page {
    uint32_t abort;    /* nonzero: every wait ends now (agent: release + FUTEX_WAKE; futex word) */
    uint32_t stop;     /* nonzero: enum stop_why; end after the step that all ranks agree on */
    uint32_t phase;    /* enum rank_phase */
    uint32_t coll_op, coll_peer; /* the collective it waits in (op, peer) when coll_seq != 0 */
    uint64_t coll_seq;
    uint64_t step;
    uint64_t time_ns;  /* clock_ns of the last change */
    uint64_t committed; /* newest generation that is complete everywhere */
};
enum stop_why { STOP_NONE, STOP_SIGNAL, STOP_TIME, STOP_DRAIN, STOP_RESIZE };

/* A key that begins so has one reader: it is forgotten as soon as its value was got. For keys that a run makes again
 * and again; all others are kept for the whole epoch. */
#define BOOT_ONCE "once/"
static inline int boot_is_once(const char *key)
{
    return strncmp(key, BOOT_ONCE, strlen(BOOT_ONCE)) == 0;
}

struct boot {
    int rank, world;
    int local_rank, local_world; /* ranks of the same agent, so of shared memory */
    int node, nodes;
    int *node_of;        /* [world] node index of every rank */
    uint32_t epoch;
    struct rank_page *page;
    int abort_fd;        /* eventfd, readable once abort is set; -1: none. Stands in every epoll set */
    const char *address; /* numeric address of this node for peers */
    const uint8_t *key;  /* [32] the job's secret: proves connections between ranks */

    /* Key space of the epoch. put copies; get waits for the key, value owned by the caller. */
    int (*put)(struct boot *b, const char *key, const void *value, size_t n, struct err *err);
    int (*get)(struct boot *b, const char *key, void **value, size_t *n, int64_t deadline_ms,
               struct err *err);
    /* Every rank of the epoch has called fence(name). */
    int (*fence)(struct boot *b, const char *name, int64_t deadline_ms, struct err *err);
    /* Descriptors among the ranks of one agent. putfd duplicates; getfd waits, result owned. */
    int (*putfd)(struct boot *b, const char *key, int fd, struct err *err);
    int (*getfd)(struct boot *b, const char *key, int *fd, int64_t deadline_ms, struct err *err);
    /* The wait is over because a peer is gone: told to the front end, which judges who is to blame. */
    void (*peer_lost)(struct boot *b, int peer, const char *op, uint64_t seq);
};

#endif
