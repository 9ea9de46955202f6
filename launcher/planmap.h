/* The map of a job as a person reads it: which rank sits where. */
#ifndef DS_PLANMAP_H
#define DS_PLANMAP_H

#include "launcher/place.h"

/* What is known of a rank beyond its place. A NULL is not known. */
struct map_rank {
    const char *cores; /* the processors it is bound to; "": not bound */
    const char *numa;  /* the NUMA nodes of these */
    char *device;      /* its entry of CUDA_VISIBLE_DEVICES; owned */
};

/* A line per rank under a head. */
void map_print(const struct hosts *hosts, const struct place *place, const struct map_rank *ranks,
               struct buf *out);
void map_print_json(const struct hosts *hosts, const struct place *place, const struct map_rank *ranks,
                    struct buf *out);
/* Gives the entries of a node's list, which stand in the order of its ranks, to ranks[0 .. n - 1]. */
void map_devices(struct map_rank *ranks, int n, const char *devices);
void map_clear(struct map_rank *ranks, int n);

#endif
