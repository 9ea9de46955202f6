/* Who there is: hosts in order with slots, devices and how to log in. Pure but for hostfile_read.
 */
#ifndef DS_HOSTFILE_H
#define DS_HOSTFILE_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

struct host {
    char *name; /* as written, brackets of IPv6 removed; owned */
    char *user; /* or NULL */
    int port;   /* 0: default */
    int *slot;  /* slot ids, sorted, unique; owned */
    int nslots;
    int *device;   /* [nslots] device id of each slot (equal to slot unless devices= was given) */
    int max_slots; /* 0: not given */
    int open;      /* no number of slots was written: there is one, and --num_gpus may ask for more */
    int line;      /* where it stands; 0: not from a file */
};

struct hosts {
    struct host *host;
    int n, cap;
    char *source; /* "FILE", "local", "sim:4x2"; owned */
};

void hosts_clear(struct hosts *);
void hosts_drop(struct hosts *, int i); /* host i; those behind it move up */

/* Parses hostfile text (grammar: ds-hostfile(5)). name is what errors call the file. All errors of
 * the file in one go: "FILE:LINE:COLUMN: what; remedy". */
int hostfile_parse(struct hosts *, const char *name, const char *text, size_t len, struct err *);
int hostfile_read(struct hosts *, const char *path, struct err *);

/* Allocation sources: a file, "local" / "local:N" (N slots), "sim:NODESxSLOTS". local nodes:
 * "local:2x1" = two agents of one slot each on this machine. */
int hosts_source(struct hosts *, const char *spec, struct err *);

/* --include / --exclude (at most one non-NULL), then --num_nodes, --num_gpus (-1: not given). */
struct host_filter {
    const char *include, *exclude;
    int num_nodes, num_slots;
    const char *nodes_option, *slots_option; /* what gave the numbers, for messages; NULL: --num_nodes, --num_gpus */
};
int hosts_filter(struct hosts *, const struct host_filter *, struct err *);

int hosts_total(const struct hosts *); /* sum of nslots */

void hosts_print_table(const struct hosts *, struct buf *);
void hosts_print_list(const struct hosts *, struct buf *); /* compressed: n[01-16,20] */
void hosts_print_json(const struct hosts *, struct buf *);

#endif
