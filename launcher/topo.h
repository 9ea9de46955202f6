/* The processors of a machine: which share a core, a NUMA node, a socket; and where its GPUs hang. Front end
 * and agent share it; topo_read is the only function that does I/O. */
#ifndef DS_TOPO_H
#define DS_TOPO_H

#include "engine/base/wire.h"

#define TOPO_CPUS 4096 /* processor numbers are below */

struct topo_cpu {
    int cpu;
    int core; /* the smallest processor number of its core: one per core of the machine */
    int numa, socket;
};

struct topo {
    struct topo_cpu *cpu; /* [n] by socket, NUMA node, core, number; owned */
    int n;
    int *gpu_numa; /* [ngpus] NUMA node of each NVIDIA GPU in the order of its bus address, -1: not known */
    int ngpus;
};

/* The processors in allowed[TOPO_CPUS], described by a tree like /sys. What the tree does not say is taken
 * as: a core each, NUMA node 0, socket 0. */
void topo_read(struct topo *t, const char *sys, const uint8_t *allowed);
/* The processors this process may run on (taskset, cgroup cpuset), however many the machine has. Their
 * number, at least 1. */
int topo_allowed(uint8_t allowed[TOPO_CPUS]);
/* Puts t->cpu in its order: for those who fill it themselves. */
void topo_sort(struct topo *t);
void topo_clear(struct topo *t);

/* The InfiniBand or RoCE device behind a network interface, as UCX names it ("mlx5_0:1"); "": none. Owned. */
char *topo_rdma(const char *sys, const char *interface);

void topo_put(struct buf *out, const struct topo *t);
void topo_get(struct reader *r, struct topo *t); /* fails the reader when it is malformed */

#endif
