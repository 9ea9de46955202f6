/* Which addresses the nodes of a job use for each other, from what their agents say about themselves. Pure. */
#ifndef DS_ADDRESS_H
#define DS_ADDRESS_H

#include "engine/base/err.h"
#include "launcher/spawn.h"

struct address {
    char *address;   /* numeric; owned */
    char *interface; /* its name, "" for the loopback of one machine; owned */
    char *rdma;      /* the RDMA device behind it, "": none; owned */
};

/* Fills out[n] (address_clear). want: an interface's name or a network in CIDR form, NULL: the
 * network in which every node has an address; of several that towards the front end, else the first in the first node's
 * order. Loopback, bridges of containers and virtual machines, and addresses that two machines have are no candidates.
 * All on one machine and nothing wanted: 127.0.0.1. names[n]: the nodes, for errors. */
int address_choose(const struct hello *const *hello, const char *const *names, int n, const char *want,
                   struct address *out, struct err *err);
void address_clear(struct address *a, int n);

#endif
