/* CUDA_VISIBLE_DEVICES of a node's ranks, within what the user, Slurm or the site allows there. Pure but for
 * devices_count. */
#ifndef DS_DEVICES_H
#define DS_DEVICES_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

/* The devices this machine has: /dev/nvidiaN. */
int devices_count(void);

/* How many entries of the mask a CUDA program would see; -1 when there is no mask (NULL). Entries are numbers,
 * GPU-..., MIG-... alike: names, not looked into. "", -1 and NoDevFiles hide all. */
int devices_visible(const char *mask);

/* The value for all ranks of a node, in their order, so that LOCAL_RANK is the index: one entry of the mask for
 * each device[n]. Without a mask the devices are the node's numbers themselves. A device counts within the mask; where
 * the user gave ids of the node's own (named: devices= of the hostfile) that stand in the mask, they are those.
 * present: devices the node has. "" (leave the variable alone): no device, a mask that hides all, or no
 * mask and more ranks than devices. -1: a mask with fewer devices than ranks, a device that is not there. */
int devices_choose(const char *mask, int present, const int *device, int n, int named, struct buf *out,
                   struct err *err);

#endif
