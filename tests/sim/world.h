/* Runs a function on every rank of a small world: as threads (comm thread) or as processes (comm
 * host). */
#ifndef DS_TESTS_SIM_WORLD_H
#define DS_TESTS_SIM_WORLD_H

#include "engine/comm/comm.h"

#define WORLD_MAX 8

struct world_run {
    const struct comm_ops *ops;
    const struct device_ops *device; /* NULL: cpu */
    int n;
    const int *node_of; /* NULL: one node */
    int64_t timeout_ms;
    int as_threads;
    /* 0, or -1 with a text in why. */
    int (*fn)(struct comm *, struct boot *, void *arg, char why[1024]);
    void *arg;
    int create_may_fail; /* fn is not called then */
    /* out */
    int rc[WORLD_MAX]; /* of fn; 1000 + signal when it was killed */
    char why[WORLD_MAX][1024];
    char lost[WORLD_MAX][128]; /* what peer_lost said: "PEER OP SEQ", "" when it was not called */
};

/* 0 when every rank returned 0; otherwise -1. abort_on_death: a killed rank sets everyone's abort
 * word, as the agent does. */
int world_run(struct world_run *w, int abort_on_death);

#endif
