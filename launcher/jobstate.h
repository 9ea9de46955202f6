/* The job's state machine: which state follows which event. Pure; job.c has the actions.
 *
 *   idle > connecting > checking > spawning > running ------------------------> reaping > done | failed
 *                                      |         +--> judging > ending > killing -^  +> cutting -^
 *                                      ^---- restarting <--+
 *
 * Events are queued: an action may post, and what it posts is looked at after it returned. */
#ifndef DS_JOBSTATE_H
#define DS_JOBSTATE_H

#include <stdint.h>

enum job_state {
    JOB_IDLE,
    JOB_CONNECTING, /* agents come up */
    JOB_CHECKING,   /* every node looks at program, folder, data */
    JOB_SPAWNING,   /* ranks start */
    JOB_RUNNING,
    JOB_JUDGING,    /* something failed: a short while for other reports, to tell cause from followers */
    JOB_RESTARTING, /* the ranks are ended, to be started again (--max-restarts) */
    JOB_ENDING,     /* ranks were asked to end */
    JOB_KILLING,    /* ranks were killed */
    JOB_REAPING,    /* agents were asked to end */
    JOB_CUTTING,    /* agents that did not are cut off */
    JOB_DONE,
    JOB_FAILED,
    JOB_STATES
};

enum job_event {
    EV_BEGIN,
    EV_ALL_UP,
    EV_ALL_CHECKED,
    EV_CHECK_FAILED,
    EV_NO_RUN,      /* a dry run ends after its checks */
    EV_ALL_STARTED,
    EV_ALL_EXITED,  /* no rank is left that could run */
    EV_RANK_FAILED,
    EV_NODE_LOST,
    EV_STOP,        /* the user asked: INT, TERM, HUP */
    EV_KILL,        /* the user asked a second time */
    EV_TIMER,       /* the state's own deadline */
    EV_RESTART,     /* the failure may be answered by a new start of all ranks */
    EV_CLEARED,     /* nothing of the old ranks is left, and the new ones have what they need */
    EV_DOWN_WELL,   /* every channel is down: nothing had failed */
    EV_DOWN_FAILED, /* every channel is down: something had */
    JOB_EVENTS
};

#define JOB_STAY (-1)       /* expected, nothing to do */
#define JOB_UNEXPECTED (-2) /* a bug of ours */

/* A state, JOB_STAY or JOB_UNEXPECTED. */
int jobstate_next(enum job_state s, enum job_event e);
const char *jobstate_name(enum job_state s);
const char *jobevent_name(enum job_event e);

#define JOB_QUEUE 64

struct machine {
    enum job_state state;
    int64_t since_ms;
    enum job_event queue[JOB_QUEUE];
    int head, queued, busy;
    void *ctx;
    /* Entered s from old after spent_ms there. */
    void (*enter)(void *ctx, enum job_state s, enum job_state old, enum job_event e, int64_t spent_ms);
    void (*unexpected)(void *ctx, enum job_state s, enum job_event e);
};

/* Queues e and, unless called from inside an action, works the queue off. */
void machine_post(struct machine *m, enum job_event e);

#endif
