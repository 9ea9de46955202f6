/* Which processors each rank of a node is bound to. Pure. */
#ifndef DS_BINDING_H
#define DS_BINDING_H

#include "engine/base/err.h"
#include "engine/base/job.h"
#include "launcher/topo.h"

struct binding_ask {
    enum bind_to to;
    const char *list; /* only these processors, "0,2-4,6"; NULL: all */
};

struct binding_rank {
    char *cpus; /* "0-3,8"; "": not bound; owned */
    char *numa; /* the NUMA nodes they lie in, "0-1"; "" when not bound; owned */
    int cores;  /* cores that are the rank's own: its number of threads; at least 1 */
};

/* "none", "core", "numa", "socket"; -1: none of them. NULL is BIND_AUTO. */
int bind_to_parse(const char *word, enum bind_to *to);

/* Binds ranks first .. first + n - 1 of total on a machine (total > n: other agents there have the others).
 * near[n]: the NUMA node of each rank's GPU, -1 not known; NULL: no GPUs. Fills out[n] (binding_clear). -1: what
 * was asked for cannot be had. */
int binding_make(const struct topo *t, const struct binding_ask *ask, int first, int total, int n,
                 const int *near, struct binding_rank *out, struct err *err);
void binding_clear(struct binding_rank *b, int n);

#endif
