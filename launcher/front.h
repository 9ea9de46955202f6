/* The front end of one job, inside: what front.c (the whole), job.c (actions of the state machine), agents.c (frames
 * from the agents), verdict.c (how it ended) and the small helpers share. One loop thread touches all of it. */
#ifndef DS_FRONT_H
#define DS_FRONT_H

#include "engine/base/log.h"
#include "launcher/address.h"
#include "launcher/aside.h"
#include "launcher/backlog.h"
#include "launcher/binding.h"
#include "launcher/control.h"
#include "launcher/jobstate.h"
#include "launcher/judge.h"
#include "launcher/kv.h"
#include "launcher/msg.h"
#include "launcher/output.h"
#include "launcher/place.h"
#include "launcher/progress.h"
#include "launcher/spawner.h"
#include "launcher/stdinpump.h"
#include "launcher/task.h"
#include "launcher/writer.h"

#define PONG_BINS 128 /* cost.c */
#define PING_PARTS 8  /* of the nodes; each tick is for one */

struct front;

struct front_node {
    struct front *front;
    int index;
    struct channel *ch;
    struct msg_decoder in;
    struct hello hello;
    int up;       /* its hello came and fits */
    int checked;
    int down;     /* the channel is gone */
    struct err why; /* what was wrong with it; ERR_OK: nothing */
    int64_t heard_ms;
    double offset; /* its wall clock minus ours, seconds */
    int failed;     /* 1 + index of its failure; 0: none */
    int64_t credit; /* as its agent counts it: bytes of output that it may send */
    size_t term_done, log_done, credited; /* bytes of output written by each writer, given credit for */
};

struct front_rank {
    int pid, started, exited;
    int ended; /* its streams that have: a bit each */
    struct rank_end end; /* when exited: how */
    int recorded;   /* 1 + index of its failure; 0: none */
    struct err *said; /* its own report; NULL: none. Owned: few ranks have one, and it is large */
    char *error;     /* the message of its error file; owned, NULL: none */
};

/* Where the ranks of a node sit: siting.c. */
struct front_site {
    struct binding_rank *rank; /* [n]; owned */
    int n;
    int first, total; /* of the ranks on its machine, of all agents there */
    char *devices; /* CUDA_VISIBLE_DEVICES; "": left alone; owned */
};

struct front {
    const struct options *o;
    struct task *task;
    const struct hosts *hosts;
    const struct spawner_ops *ops;
    void *pool;
    struct place place;
    uv_loop_t loop;
    struct machine machine;
    uv_timer_t timer, tick, partial; /* the state's deadline; pings; unfinished lines */
    uv_poll_t signals; /* bytes from the outer process: keeper.h */
    int signal_fd;
    struct front_node *node;
    struct front_rank *rank;
    struct address *address;
    struct front_site *site; /* [nodes] NULL before all agents are up */
    const char **rank_host;
    int ups, checks, check_failures, starts, exits, downs, losses; /* counts of what is there */
    struct kv *kv;
    uint32_t epoch;
    int restarts;              /* how often all ranks were started again */
    int stream_ends;           /* of this epoch: two a rank */
    int port_given, port_asked; /* MASTER_PORT is the user's; another one was asked for and is not here yet */
    struct failure *failures;
    int nfailures, failures_cap;
    int stop_signal;   /* the user's; 0: none */
    int stops;
    int late;          /* the time for hosts to answer was up */
    int waits_said;    /* how often the slow hosts were named */
    struct err trouble; /* what ended the job before a rank ran; ERR_OK: nothing */
    int bug;
    /* output */
    struct output *output;
    struct writer *term, *files; /* files NULL: no logs */
    struct backlog backlog;      /* output that is not with term yet */
    size_t dropped;              /* messages, metrics and events that no writer had room for */
    struct sink *out[3];         /* by stream */
    struct sink **rank_log;      /* [world], NULL when there are no logs */
    uint8_t *how;                /* frontlogs.c: [world], NULL: every stream is shown and none has a file */
    struct sink **stream_log;    /* [2 * world] of this attempt, NULL: none */
    char *logs;                  /* their folder */
    struct sink *events, *metrics;
    struct progress progress;
    int bar_fd;                  /* the terminal for ranks' progress bars */
    int live;                    /* a live line is drawn on stderr */
    int64_t live_ms;             /* when it was drawn last */
    char *run_dir;               /* absolute; NULL: none */
    int run_dir_made, run_lock;  /* run_lock: see rundir_lock */
    struct aside *folders;       /* they are being made; NULL: they are not */
    double began_wall;
    int64_t spent_ms[JOB_STATES];
    struct buf frame; /* being put together for one send */
    size_t bytes_to, bytes_from; /* frames to and from the agents */
    int tick_part;
    unsigned pong[PONG_BINS];    /* how many pings were answered in which time */
    struct stdin_pump *pump; /* NULL: no stdin */
    struct stdin_room *in;   /* frontin.c: stdin goes to all; NULL: to rank 0 */
    struct control *control; /* NULL: none could be had */
};

/* front.c */
/* The exit status; FRONT_AGAIN: hosts were lost and taken out of hosts, and it is to be run again. */
#define FRONT_AGAIN (-1)
int front_run(const struct options *o, struct task *task, struct hosts *hosts,
              const struct spawner_ops *ops, int signals);
/* Its parts: what is borrowed outlives it. Idle until EV_BEGIN is posted to its machine. */
struct front *front_create(const struct options *o, struct task *task, const struct hosts *hosts,
                           const struct spawner_ops *ops, int signals, struct err *err);
void front_destroy(struct front *f);
void front_signal(struct front *f, int sig); /* what the user sent, through the terminal or ds-launch kill */

/* job.c */
void job_enter(void *front, enum job_state s, enum job_state old, enum job_event e, int64_t spent_ms);
void job_unexpected(void *front, enum job_state s, enum job_event e);
void front_send(struct front *f, int node, enum msg_type type, const void *data, size_t n);
void front_send_all(struct front *f, enum msg_type type, const void *data, size_t n);
void front_send_number(struct front *f, enum msg_type type, uint64_t v, int bytes);
void front_deadline_in(struct front *f, int64_t ms);
void front_deadline(struct front *f); /* the state's time is up */
int front_has_hello(const struct front_node *nd); /* or will not come */
void front_checks_done(struct front *f);
void front_folders_made(struct front *f, const struct err *err); /* err->code ERR_OK: they are there */
void front_count_down(struct front *f);

/* frontctl.c: how a running job is reached */
void front_control_open(struct front *f);

/* agents.c */
extern const struct channel_events agent_events;
void front_node_lost(struct front *f, int node, const struct err *why);
void front_tick(struct front *f);

/* restart.c */
#define RESTART_GRACE_MS 2000
int front_may_restart(const struct front *f);
void front_restart(struct front *f);    /* ends the ranks; EV_CLEARED follows */
void front_try_clear(struct front *f);
void front_all_exited(struct front *f); /* no rank is left that could run */
void front_new_epoch(struct front *f);
int front_held(struct front *f, int node, int port, struct err *err);

/* shrink.c: --nnodes MIN:MAX */
int front_may_shrink(const struct front *f); /* 1: enough hosts are left after some were lost */
uint8_t *front_shrink(struct front *f);      /* says so; which hosts are lost, owned */

/* spawning.c: what the agents get for CHECK and SPAWN; needs every hello. */
int front_addresses(struct front *f, struct err *err);
void front_send_spawn(struct front *f, enum msg_type type);

/* folders.c: makes them beside the loop; front_folders_made (job.c) follows, now or later. */
void front_make_folders(struct front *f);

/* siting.c: processors and devices of every rank; needs every hello. The number of nodes where what was asked
 * for cannot be had: their why says it. */
int front_sites(struct front *f);
void front_sites_clear(struct front *f);
void front_print_map(const struct front *f, struct buf *out); /* ranks, addresses: a table */

/* frontout.c */
int front_output_open(struct front *f, struct err *err);
int front_output_logs(struct front *f, struct err *err);
/* -1: the node sent more than it has credit for. */
int front_output(struct front *f, int node, int rank, int stream, const char *data, size_t n, struct err *err);
void front_grant(struct front *f); /* the first credit of every node */
void front_metric(struct front *f, int rank, const char *json, size_t n);
void front_say(struct front *f, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* One object into events.jsonl: fmt is what stands behind "ev". */
void front_event(struct front *f, const char *ev, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void front_rank_event(struct front *f, uint32_t epoch, int rank, const char *json, size_t n);
void front_output_tick(struct front *f); /* ten times a second */
void front_output_close(struct front *f);

/* frontin.c */
int front_stdin_open(struct front *f, struct err *err);
void front_stdin_close(struct front *f);
int front_stdin_rank(const struct front *f); /* as struct spawn says it */
int front_stdin_want(struct front *f, int rank, uint32_t bytes, struct err *err); /* -1: more than a rank may ask for */
void front_stdin_gone(struct front *f, int rank); /* it reads no more */

/* cost.c */
void front_say_cost(struct front *f);
void front_count_pong(struct front *f, int64_t ns); /* from a ping to its answer */

/* frontlogs.c: files by torchrun's words */
int front_logs_wanted(struct front *f); /* 1: some streams go to files */
void front_logs_attempt(struct front *f);              /* the files of the ranks that start now */
void front_logs_put(struct front *f, int node, int rank, int stream, const char *data, size_t n);
int front_logs_shown(const struct front *f, int rank, int stream);
void front_logs_where(const struct front *f, int rank, struct buf *out); /* "": nowhere */
void front_logs_clear(struct front *f);

/* verdict.c */
void front_failed(struct front *f, enum failure_kind kind, int rank, int node, double wall);
/* Hosts whose flag is not set, compressed: "w[1-3]". get returns the flag. */
void front_laggards(const struct front *f, int (*has)(const struct front_node *), struct buf *out);
/* Who is to blame, as a sentence, when something failed; the exit status. */
int front_blame(const struct front *f, struct buf *text);
int front_verdict(struct front *f); /* prints how it ended; the exit status */

#endif
