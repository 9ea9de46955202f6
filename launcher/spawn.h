/* The two large payloads between front end and agent, and what both ends must agree on beside the
 * frames of msg.h.
 *
 * MSG_HELLO carries struct hello. MSG_SPAWN and MSG_CHECK carry struct spawn (CHECK looks at the
 * program, cwd, env, job text and world and starts no rank). The epoch stands in the frame's
 * header.
 *
 * Rank numbers in MSG_FAIL and MSG_EVENT may be MSG_NODE: the node itself, no rank of it. What an
 * agent answers to SPAWN: one STARTED per rank, or FAIL (rank or MSG_NODE, with the sentence) and
 * an EXIT for every rank that did not start (code 127). Every rank of a SPAWN gets exactly one
 * EXIT, as soon as it is reaped: output that waits for credit comes later. An OUTPUT without bytes
 * ends that stream (once for stdout and once for stderr, needs no credit); a process the rank left
 * behind may hold a stream open, so whoever waits for the ends of all streams first sends END or
 * KILL, which ends all descendants.
 *
 * Credit: an agent begins with none; MSG_CREDIT adds to it; an OUTPUT frame uses up the bytes it
 * carries behind rank and stream, and may overdraw it by the end of a line. A frame holds whole lines, or part of one
 * that is long or whose rank has paused within it. The other way round, MSG_WANT says how
 * many bytes of STDIN the rank's agent takes. */
#ifndef DS_SPAWN_H
#define DS_SPAWN_H

#include "engine/base/build.h"
#include "engine/base/err.h"
#include "engine/base/wire.h"
#include "launcher/topo.h"

#define MSG_NODE 0xffffffffu
#define SPAWN_KEY_BYTES 32
#define SPAWN_STDIN_ALL (-2)
#define SPAWN_MAX_WORLD (1 << 20)

struct spawn_rank {
    int rank, local_rank;
    int threads; /* OMP_NUM_THREADS unless the user set it; 0: as many as processors are left for it */
    char *cpus;  /* "0-3,8": processors to bind to; "": as the agent */
};

struct spawn {
    char *job_id;
    char *host;   /* this node as the user wrote it, for messages */
    int restarts; /* TORCHELASTIC_RESTART_COUNT */
    int world, nodes, node;
    int *node_of;          /* [world]; for spawn_put only, when node_runs is empty: spawn_get leaves it NULL */
    struct buf node_runs;  /* the same as put_node_of (wire.h) writes it: a world of any size in a few bytes */
    char *address;   /* this node's numeric address for peers */
    char *interface; /* its interface, for GLOO_SOCKET_IFNAME and the like; "": leave them alone */
    char *master_addr; /* numeric */
    int master_port;
    uint8_t key[SPAWN_KEY_BYTES];
    int64_t grace_ms, ping_limit_ms,
        check_ms; /* check_ms: deadline of CHECK; 0: defaults (see agent) */
    int engine;   /* ranks get DS_AGENT_FD; 0: a foreign program */
    int pass_local_rank; /* --local_rank=N stands in front of this word of argv; 0: nowhere */
    int stdin_rank;      /* the rank that gets STDIN frames; -1: none; SPAWN_STDIN_ALL. Others read /dev/null */
    char **argv;
    int argc;  /* argv[0] "": ds-rank of the same build, found by the agent */
    char *rank_program; /* where the front end's own ds-rank lies, to look for it there too; "": nowhere */
    char *cwd; /* "": the agent's */
    int umask; /* -1: the agent's */
    char **env;
    int nenv; /* over the agent's own environment: NAME=VALUE sets, NAME alone removes */
    uint8_t *job;
    size_t job_len; /* settings as INI text: key "job" */
    struct spawn_rank *rank;
    int nranks; /* of this node: rank[i].local_rank == i, ranks ascending */
    char *devices; /* CUDA_VISIBLE_DEVICES of every rank here; "": what is set there stays */
    char *rdma;    /* the RDMA device behind interface, for UCX; "": none */
    int max_restarts;     /* TORCHELASTIC_MAX_RESTARTS */
    char *run_id, *role;  /* TORCHELASTIC_RUN_ID, ROLE_NAME; "": the job's id, "default" */
    int64_t core_bytes;   /* RLIMIT_CORE of the user's shell; -1: unlimited; SPAWN_CORE_KEEP: the agent's */
    char *venv;           /* a shell script that makes the ranks' environment, absolute; "": none */
    int nlate;            /* so many of env, the last ones, count over what that script sets */
};

#define SPAWN_CORE_KEEP (-2)

/* Appends the payload. */
void spawn_put(struct buf *out, const struct spawn *s);
/* Reads a payload; everything in *s is owned (spawn_clear). -1: malformed or contradictory (a rank
 * out of the world, a local_rank twice, no program). s is cleared then. */
int spawn_get(struct spawn *s, const void *data, size_t n, struct err *err);
void spawn_clear(struct spawn *s);

struct hello_iface {
    char *name, *address; /* numeric, IPv6 without scope */
    int prefix;           /* bits of the netmask */
    int loopback;
    char *rdma; /* its RDMA device as UCX names it, "mlx5_0:1"; "": none */
};

struct hello {
    char *build_id, *machine, *kernel, *hostname, *boot_id, *cwd;
    int pid;
    int cores;  /* processors this agent may use */
    char *cpus; /* which: "0-3,8" */
    uint64_t mem_bytes, mem_available_bytes;
    int devices; /* /dev/nvidiaN nodes */
    int port;    /* a TCP port the agent keeps free (bound, SO_REUSEADDR, not listening) until ranks start that have
                  * another (MSG_HOLD), or to its end: MASTER_PORT when this node is the master. 0: none could be had */
    struct hello_iface *iface;
    int nifaces; /* up, with an address */
    struct topo topo;  /* of the processors in cpus */
    char *device_mask; /* CUDA_VISIBLE_DEVICES there; "": not set */
    int masked;        /* 1: it is set */
    char *toward;      /* its address by which the front end's ssh came; "": not by ssh */
};

void hello_put(struct buf *out, const struct hello *h);
int hello_get(struct hello *h, const void *data, size_t n, struct err *err);
void hello_clear(struct hello *h);

/* A name for 1..n processors: "0-3,8". cpus_parse fills set[max] with 0/1; -1: not a list or beyond
 * max. */
void cpus_print(const uint8_t *set, int max, struct buf *out);
int cpus_parse(const char *text, uint8_t *set, int max);

#endif
