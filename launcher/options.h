/* The command line of ds-launch as one struct, one table (options.c): parsing, --help and the manual page
 * check read the same rows. Flags may be spelled with - or _ alike. */
#ifndef DS_OPTIONS_H
#define DS_OPTIONS_H

#include "engine/base/err.h"
#include "engine/base/settings.h"

/* torchrun's words (options_torch.c). */
enum { NPROC_NONE = 0, NPROC_AUTO = -1, NPROC_GPU = -2, NPROC_CPU = -3 };
struct torch_options {
    int used;                 /* one of the words that say how many ranks: no --local_rank is appended */
    int nodes_min, nodes_max; /* --nnodes; 0: not given */
    int nproc;                /* ranks on every node, or one of NPROC_* */
    int standalone, max_restarts;
    int64_t join_ms;          /* of --rdzv-conf; 0: not given */
    char *run_id, *role, *local_addr;              /* NULL: not given */
    char *node_rank, *endpoint;                    /* NULL: not given */
    char *log_dir, *redirects, *tee, *ranks_shown; /* NULL: not given */
};

struct options {
    struct torch_options torch;
    /* who */
    char *hostfile, *hosts, *include, *exclude;
    int num_nodes, ranks_per_node; /* -1: not given */
    int list, json; /* how `hosts` prints */
    char *signal;   /* kill; NULL: TERM */
    int live;       /* exec: output as it comes */
    int64_t timeout_ms; /* exec; -1: not given */
    /* how to get there */
    char *launcher, *launcher_args; /* local, exec, openssh, ssh; NULL: ssh unless all hosts are local */
    int ssh_port;                   /* 0: not given */
    char *ssh_config;               /* NULL: ~/.ssh/config */
    char *identity;                 /* extra identity file */
    char *master_addr;
    int master_port;                /* 0: not given */
    char *interface;
    int64_t connect_timeout_ms, ping_limit_ms, grace_ms; /* -1: not given */
    /* what the ranks get */
    char **export; int nexports;
    char *venv_script;
    int no_local_rank, module, no_python;
    char *bind_to, *bind_core_list; int bind_cores;
    char *topology; /* plan: the hosts look like this */
    /* output */
    char *prefix_style; /* see output_prefix_parse; NULL: not given */
    char *color;        /* auto, always, never; NULL: not given */
    int fold;
    char *stdin_to;     /* 0, all, none; NULL: not given */
    char *log_dir, *run_dir;
    int quiet; char *log_level;
    int dry_run, save_pid;
    /* what to run */
    struct settings_rows set; /* --set PATH=VALUE and job-file overrides (--resume, --init-from) */
    char *deepspeed_config;   /* a DeepSpeed JSON file: the job, or over its file */
    int settings;             /* info --settings */
    const char **given; int ngiven; /* the names of the options that were given, as in the table */
    char **argv; int argc;    /* job file or program with its arguments */
    char **line; int nline;   /* the whole command line as it was typed; borrowed */
};

/* Reads the flags up to the first word that is none; that word and what follows is o->argv (o->argv[0] is
 * the program or subcommand). argv[0] is skipped. warn gets lines about flags that have no effect. 0;
 * 1: --help or --version was asked for, its text is in out; -1: err. */
int options_parse(struct options *o, int argc, char **argv, struct buf *out, struct buf *warn,
                  struct err *err);
/* The same for what follows a subcommand or a job file: flags are read on into o, other words are collected
 * in o->argv behind its first. */
int options_parse_more(struct options *o, struct buf *out, struct buf *warn, struct err *err);
/* 1 when the word names a job file: it ends in .ini or .json. */
int options_is_job(const char *word);
/* options_use.c. 1 when word is a command of ours that reads these options: hosts, plan, ... */
int options_is_command(const char *word);
/* The option among names (" a b c ") that was given last, as it is in the table; NULL: none of them was. */
const char *options_given(const struct options *o, const char *names);
/* Refuses what the command in o->argv[0] has no use for; any other word there is a program or job. */
int options_check_use(const struct options *o, struct err *err);
/* One line for every word of o->argv behind the program that is spelled like one of our flags: it belongs to
 * the program. */
void options_warn_behind(const struct options *o, struct buf *warn);
void options_clear(struct options *o);

#endif
