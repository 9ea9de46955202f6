/* What is to be run, worked out from command line and job file before any host is contacted. */
#ifndef DS_TASK_H
#define DS_TASK_H

#include "engine/base/job.h"
#include "hostfile/hostfile.h"
#include "launcher/binding.h"
#include "launcher/exportenv.h"
#include "launcher/options.h"
#include "launcher/spawn.h"

struct task {
    int engine;              /* a job file; 0: a program */
    char *job_file;          /* its path; owned */
    struct settings_rows rows;
    struct job job;
    struct settings settings;
    char *name;              /* of the run */
    char **argv; int argc;   /* what the agent starts */
    char *rank_program;      /* the ds-rank beside this program; owned, NULL: none */
    int python;              /* a Python program (PYTHONPATH): where its arguments begin in argv; 0: none */
    struct envlist env;
    char *venv;              /* of --venv_script, absolute; NULL: none */
    char *cwd;
    char job_id[32];
    uint8_t key[SPAWN_KEY_BYTES];
    int64_t grace_ms, connect_timeout_ms, ping_limit_ms;
    const char *launcher, *master_addr, *interface; /* borrowed from options or job; NULL: not given */
    int master_port;
    /* of the launch before this one, which had more hosts (shrink.c) */
    int restarts;
    uint32_t epoch;
    char *logs; /* owned, NULL: none */
    struct binding_ask bind; /* its list is borrowed as well */
};

/* Reads the job file or looks at the program. o must outlive the task. */
int task_make(struct task *t, const struct options *o, struct err *err);
/* The hosts with all filters: --hosts, --hostfile, the job's [launch], /job/hostfile, this machine. */
int task_hosts(const struct task *t, const struct options *o, struct hosts *hosts, struct err *err);
/* The spawner for them: --launcher, or local when every host is this machine, or ssh. */
struct spawner_ops;
const struct spawner_ops *task_spawner(const struct task *t, const struct hosts *hosts,
                                       struct err *err);
void task_clear(struct task *t);

/* task_torch.c. The ranks on this machine that --nproc-per-node auto, gpu or cpu means; at least 1. */
int torch_slots(const struct options *o);
/* What is left for the hosts once they are known: --nproc-per-node in words, --nnodes MIN:MAX, --local-addr. */
int torch_hosts(const struct options *o, struct hosts *hosts, struct err *err);

#endif
