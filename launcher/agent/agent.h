/* The worker's parts: what they share. One thread, one loop; nothing here blocks. */
#ifndef DS_AGENT_H
#define DS_AGENT_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "launcher/agent/loop.h"
#include "launcher/msg.h"
#include "launcher/spawn.h"

#include <stdint.h>
#include <sys/types.h>

struct agent;
struct cgroup;
struct chan;
struct check;
struct links;
struct oom;
struct team;

/* ---- the channel (chan.c): frames on two descriptors, always read, never waited for */
struct chan_events {
    void (*msg)(void *ctx, const struct msg *m);
    void (*down)(void *ctx, const char *why); /* once; nothing can be sent any more */
    void (*drained)(void *ctx);               /* everything queued is in the system's hands */
};
struct chan *chan_create(struct loop *l, int in, int out, const struct chan_events *ev, void *ctx,
                         struct err *err);
void chan_destroy(struct chan *c); /* NULL is fine; closes nothing */
void chan_raw(struct chan *c, const void *data, size_t n);
/* Clears body. */
void chan_sendb(struct chan *c, enum msg_type type, uint32_t epoch, struct buf *body);
void chan_lose(struct chan *c); /* a simulated node dies: both ends see the end */
/* Reads what is there now; when it last heard anything (clock_ms). */
int64_t chan_poll(struct chan *c);

/* ---- one epoch's ranks on this node (ranks.c, pump.c) */
struct stream {
    struct rank *rank;
    int which; /* 1 stdout, 2 stderr */
    int fd;    /* -1: ended */
    struct watch *watch;
    struct buf tail;  /* read, and no end of line yet; at most 64 KiB */
    int lines_left;   /* it has whole lines that wait for credit */
    int64_t tail_ms, tail_began_ms; /* when something was added to it last, first */
};

struct rank {
    struct team *team;
    int number; /* the rank */
    int index;  /* of the node's ranks: local_rank */
    pid_t pid;  /* 0: not started or reaped */
    int exited; /* EXIT was sent */
    struct stream out[2];
    int in_fd; /* its stdin, -1: none or closed */
    struct watch *in_watch;
    struct buf in;
    int in_end;    /* close stdin when in is empty */
    int status_fd; /* becomes readable when exec is done (end of file) or failed (two ints) */
    struct watch *status_watch;
    int error_fd; /* its error file, -1: none */
};

struct team {
    struct agent *agent;
    uint32_t epoch;
    struct spawn spawn;
    struct rank *rank;
    int n, running;      /* running: not reaped, those to be started included */
    int started;         /* ranks that were started or given up */
    int failed;          /* one could not be started, or all were to end: the rest are not tried */
    struct ticker *starter;
    struct links *links; /* NULL: foreign program */
    struct team *next;   /* older ones, kept until their output is sent */
};

/* Takes over spawn. Ranks are started in slices of a few milliseconds, so that pings are answered
 * meanwhile; those not started when the node's processes are ended never are. What can't be started is told
 * as FAIL and EXIT. */
struct team *team_start(struct agent *a, uint32_t epoch, struct spawn *spawn);
void team_destroy(struct team *t);
/* 1 when pid was one of its ranks. */
int team_reaped(struct team *t, pid_t pid, int status);
void team_signal(struct team *t, int signo);
void team_stdin(struct team *t, int rank, const void *data, size_t n); /* rank -1: all */
int team_streams(const struct team *t); /* streams that have not ended */
void team_fail(struct team *t, uint32_t rank, const struct err *err);

/* pump.c: what flows between a rank's pipes and the channel */
/* Take fd, also on failure: -1 and err when it cannot be watched. */
int stream_open(struct stream *s, int fd, struct err *err);
int stdin_open(struct rank *r, int fd, struct err *err);
void stdin_begin(struct rank *r); /* asks for what there is room for */
void stream_pump(struct stream *s); /* what is there and credit allows */
void stream_close(struct stream *s);
void stream_never(struct stream *s); /* of a rank that never was: its end is told */
void stdin_close(struct rank *r);
void pump_credit(struct agent *a); /* credit came: streams move again */
void pump_tails(void *agent);      /* its tail_ticker */

/* errfile.c. Its path, owned; NULL: none could be made. */
char *errfile_open(struct rank *r);
void errfile_send(struct rank *r); /* what is in it, when the rank is gone; closes */
void errfile_close(struct rank *r);
/* limits.c: in the child. */
void limits_set(const struct spawn *s);

/* ---- the ranks' sockets (links.c) */
struct links *links_create(struct team *t);
void links_destroy(struct links *k); /* NULL is fine */
/* The rank's end for rank number index: close-on-exec, owned by the caller. -1 and err. */
int links_open(struct links *k, int index, struct err *err);
/* Instead of links_open for a rank inside this process (a simulated one): its packets are calls. */
void links_attach(struct links *k, int index,
                  void (*take)(void *ctx, const uint8_t *packet, size_t n), void *ctx);
void links_packet(struct links *k, int index, const uint8_t *packet, size_t n);
/* failed: the others' waits end now. */
void links_rank_gone(struct links *k, int index, int failed);
/* Where the rank stands, as its page says; e is left alone when it has none. */
void links_where(const struct links *k, int index, struct rank_end *e);
void links_stop(struct links *k, uint32_t why);
void links_value(struct links *k, const char *key, const void *value, size_t n);
void links_fenced(struct links *k, const char *name);

/* ---- CHECK (check.c) */
/* Takes over spawn; the answer goes out as CHECKED. A second one while it runs replaces nothing:
 * refused. */
void check_start(struct agent *a, uint32_t epoch, struct spawn *spawn);
int check_reaped(struct agent *a, pid_t pid, int status);
void check_destroy(struct check *c);

/* ---- --venv_script (venv.c) */
void venv_exec(const struct spawn *s, char **env, pid_t agent); /* in the child; returns when it failed */
int venv_print(void);                                           /* the environment to stdout; exit status */
/* What that printed; owned (rankenv_free). NULL: it is cut short. */
char **venv_take(const char *text, size_t n);
void venv_late(struct spawn *s); /* env without what the script has seen already */

/* ---- this node (node.c, oom.c) */
void node_hello(struct hello *h); /* everything owned: hello_clear; but for port */
int node_cores(void);
/* The program of s's ranks; owned. Without a name it is ds-rank: beside this agent, where the front end has it, or
 * where the package is installed. "" and err when it is in none of these. */
char *node_rank_program(const struct spawn *s, struct err *err);
/* port.c: holds one more port, for the MASTER_PORT of ranks to come; 0: any. Its number; 0 and errno: not to be had. */
int port_hold(struct agent *a, int port);
void port_release(struct agent *a, int keep); /* all but the last so many */
/* Before a rank starts: the given MASTER_PORT is ours if this is the master's node. */
int port_claim(struct agent *a, const struct spawn *s, struct err *err);
struct oom *oom_create(void);
void oom_destroy(struct oom *o);
/* Was it the kernel, for want of memory? A guess: 0 or 1. */
int oom_killed(struct oom *o, pid_t pid);

/* ---- frames about ranks that several files send (tell.c) */
void tell_started(struct team *t, int rank, pid_t pid);
void tell_output(struct team *t, int rank, int which, const void *data, size_t n); /* n 0: ended */
void tell_exit(struct team *t, int rank, const struct rank_end *end);
void tell_checked(struct agent *a, uint32_t epoch, enum err_code code, const char *text);

/* ---- the worker (worker.c) */
struct agent {
    struct loop *loop;
    struct chan *chan;
    struct team *team; /* the current one first; NULL before the first SPAWN */
    struct check *check;
    struct oom *oom;
    int cores;
    char **env; /* of the ranks before their own variables: the script's; NULL: environ */
    struct port {
        int number, fd, name;
    } * port; /* [nports] that are held */
    int nports, ports_cap;
    int64_t credit; /* bytes of OUTPUT that may be sent; below 0 by the end of a line */
    int tails;      /* the ticker runs: a stream has one */
    struct ticker *tail_ticker;
    int64_t ping_limit_ms, grace_ms;
    struct ladder {
        int step;      /* see worker.c */
        int64_t until; /* clock_ms */
        struct ticker *ticker;
    } ladder;
    struct spawn next; /* waits for the end of the old ranks; argc 0: none */
    uint32_t next_epoch;
    int next_kill; /* KILL came for it before it started */
    int ending;    /* the agent itself ends after the ladder */
    int mute;      /* the channel is gone */
    struct buf why;
    struct ticker *ping_ticker, *end_ticker;
    struct watch *keeper;
    struct cgroup *cgroup; /* NULL: none */
    int status; /* exit status */
    void (*ended)(struct agent *a); /* its life is over; still inside its own calls, so close it later */
};

/* An agent on a loop and a channel that are there: what a node's worker and each of a simulation's nodes are. a is
 * zeroed but for ended. Signals, the keeper and the loop are the caller's. */
int agent_open(struct agent *a, struct loop *loop, int in, int out, struct err *err);
void agent_greet(struct agent *a, const struct hello *h);
void agent_close(struct agent *a);

/* The worker's life; returns its exit status. keeper_fd: end of file when the keeper is gone. */
int worker_run(int keeper_fd, struct cgroup *cgroup);
void agent_fail(struct agent *a, uint32_t epoch, uint32_t rank, const struct err *err);
/* fd above the numbers that a child overwrites (0 to 9); closes the old one. -1 stays -1. */
int lift_fd(int fd);
/* fork with all signals blocked in the child, for child_reset; see cgroup_fork. */
pid_t child_fork(struct cgroup *cgroup);
/* Between fork and exec of any program that we start: default signals, own process group, dies with
 * us. */
void child_reset(pid_t parent);
/* The text behind "PROGRAM cannot be started": errno of a failed exec, in words. */
void exec_error(struct err *err, const char *host, const char *program, const char *cwd, int at,
                int error);
enum { EXEC_CWD = 1, EXEC_CPUS, EXEC_FDS, EXEC_PROGRAM, EXEC_SCRIPT, EXEC_VENV };

#endif
