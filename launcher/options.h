/* The command line of ds-launch as one struct, one table (options.c): parsing, --help and the manual page
 * check read the same rows. Flags may be spelled with - or _ alike. */
#ifndef DS_OPTIONS_H
#define DS_OPTIONS_H

#include "engine/base/err.h"
#include "engine/base/settings.h"

struct options {
    /* who */
    char *hostfile, *hosts, *include, *exclude;
    int num_nodes, ranks_per_node; /* -1: not given */
    /* how to get there */
    char *launcher, *launcher_args; /* local, exec, ssh; NULL: ssh unless all hosts are local */
    int ssh_port;
    char *ssh_config;               /* NULL: ~/.ssh/config */
    char *identity;                 /* extra identity file */
    char *master_addr;
    int master_port;
    char *interface;
    int64_t connect_timeout_ms, ping_limit_ms, grace_ms;
    /* what the ranks get */
    char **export; int nexports;
    int no_local_rank, module, no_python;
    /* output */
    char *prefix_style, *log_dir, *run_dir;
    int quiet; char *log_level;
    int dry_run;
    /* what to run */
    struct settings_rows set; /* --set PATH=VALUE and job-file overrides (--resume, --init-from) */
    char **argv; int argc;    /* job file or program with its arguments */
};

/* argv[0] is the program or subcommand. 0; 1: --help or --version was printed; -1: err. */
int options_parse(struct options *, int argc, char **argv, struct err *);
void options_clear(struct options *);

#endif
