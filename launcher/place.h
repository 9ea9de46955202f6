/* Ranks onto hosts and slots. Pure: no I/O, no clock. */
#ifndef DS_PLACE_H
#define DS_PLACE_H

#include "engine/base/err.h"
#include "hostfile/hostfile.h"

struct place_rank {
    int node, local_rank;
    int slot, device; /* as the hostfile names them */
};

struct place {
    int world, nodes;
    struct place_rank *rank; /* [world]; ranks of a node stand together, nodes in order; owned */
    int *first;              /* [nodes + 1] first rank of each node; owned */
};

/* One rank a slot, in the order of hosts and slots. -1 when a host goes beyond its max_slots or the world
 * beyond PLACE_MAX. */
#define PLACE_MAX (1 << 20)
int place_make(struct place *p, const struct hosts *hosts, struct err *err);
void place_clear(struct place *p);

#endif
