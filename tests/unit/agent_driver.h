/* A front end in small, for tests of ds-agent: starts it over pipes, speaks frames, keeps what it
 * says. */
#ifndef DS_AGENT_DRIVER_H
#define DS_AGENT_DRIVER_H

#include "launcher/msg.h"
#include "launcher/spawn.h"

#include <sys/types.h>

#define DRIVER_RANKS 8
#define LONG_MS 60000 /* nothing takes this long; a bound for what hangs */

struct driver_rank {
    int started, pid, exits, code, signal;
    int ended[3];       /* by stream number */
    struct buf out[3];  /* by stream number */
    struct buf metrics; /* one JSON object a line */
    struct buf fails;   /* sentences, one a line */
    int wanted;         /* bytes of stdin the agent allowed */
};

struct driver {
    pid_t pid; /* the keeper; 0 once reaped */
    int in, out;
    int status;
    struct msg_decoder decoder;
    struct hello hello;
    int greeted, bye, closed;
    int echo_credit; /* give back what was used */
    size_t largest;  /* bytes of an OUTPUT frame */
    int pongs;
    int checks;
    uint32_t check_code;
    struct buf check_text, node_fails;
    struct driver_rank rank[DRIVER_RANKS];
    struct {
        char *key;
        uint8_t *value;
        uint32_t n;
    } kv[64];
    int nkv;
    char *waiting[64]; /* keys that were asked for and are not there */
    int nwaiting;
    int n; /* ranks of the last table: what the conditions below look at */
    uint32_t epoch;
    char mark[64]; /* DS_TEST_MARK=...: in the environment of everything the agent starts */
    char *mark_env[4];
};

void driver_start(struct driver *d);
/* Until done() or ms are over; 1 when done. */
int driver_until(struct driver *d, int (*done)(const struct driver *d), int ms);
void driver_send(struct driver *d, enum msg_type type, const void *data, size_t n);
void driver_u32(struct driver *d, enum msg_type type, uint32_t v);
void driver_u64(struct driver *d, enum msg_type type, uint64_t v);
void driver_stdin(struct driver *d, int rank, const void *data, size_t n);
/* A table of n ranks on one node; fields may be changed before driver_spawn. argv NULL at the end.
 */
struct spawn driver_table(struct driver *d, int n, char **argv);
void driver_spawn(struct driver *d, const struct spawn *s);
void driver_check(struct driver *d, const struct spawn *s);
/* Waits for the agent's own end; its exit status, -1 when it does not end. */
int driver_wait(struct driver *d, int ms);
void driver_clear(struct driver *d); /* kills what is left */
/* Live processes that carry the mark. */
int driver_left(const struct driver *d);
/* 1 when driver_left becomes 0 within ms. */
int driver_gone(const struct driver *d, int ms);

/* Conditions for driver_until, over all ranks. */
int driver_greeted(const struct driver *d);
int driver_exited(const struct driver *d);
int driver_over(const struct driver *d);  /* exited, both streams ended */
int driver_spoke(const struct driver *d); /* printed a line */
int driver_checked(const struct driver *d);
int driver_never(const struct driver *d);
/* A greeted agent with 1 MiB of credit; the usual end: END, BYE, exit 0, nothing left. cmocka
 * assertions. */
void driver_begin(struct driver *d);
void driver_finish(struct driver *d);

#endif
