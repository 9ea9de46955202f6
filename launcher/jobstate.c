/* The two tables of the job's state machine: see jobstate.h. */
#include "launcher/jobstate.h"

#include "engine/base/clock.h"

#define X JOB_UNEXPECTED
#define o JOB_STAY

static const char *const state_names[JOB_STATES] = {
    "idle", "connecting", "checking", "spawning", "running", "judging", "restarting", "ending",
    "killing", "reaping", "cutting", "done", "failed",
};

static const char *const event_names[JOB_EVENTS] = {
    "begin", "all up", "all checked", "check failed", "nothing to run", "all started", "all exited",
    "rank failed", "node lost", "stop", "kill", "timer", "restart", "cleared",
    "down well", "down failed",
};

/* clang-format off */
static const signed char next[JOB_EVENTS][JOB_STATES] = {
#define ROW(idle, con, chk, spw, run, jdg, res, end, kil, rea, cut, don, fai) \
    {idle, con, chk, spw, run, jdg, res, end, kil, rea, cut, don, fai}
#define CON JOB_CONNECTING
#define CHK JOB_CHECKING
#define SPW JOB_SPAWNING
#define RUN JOB_RUNNING
#define JDG JOB_JUDGING
#define RES JOB_RESTARTING
#define END JOB_ENDING
#define KIL JOB_KILLING
#define REA JOB_REAPING
#define CUT JOB_CUTTING
#define DON JOB_DONE
#define FAI JOB_FAILED
    /*                     idle con  chk  spw  run  jdg  res  end  kil  rea  cut  don  fai */
    [EV_BEGIN]       = ROW(CON, X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X),
    [EV_ALL_UP]      = ROW(X,   CHK, X,   X,   X,   X,   X,   X,   X,   o,   X,   X,   X),
    [EV_ALL_CHECKED] = ROW(X,   X,   SPW, X,   X,   X,   X,   X,   X,   o,   X,   X,   X),
    [EV_CHECK_FAILED]= ROW(X,   X,   REA, X,   X,   X,   X,   X,   X,   o,   X,   X,   X),
    [EV_NO_RUN]      = ROW(X,   X,   REA, X,   X,   X,   X,   X,   X,   o,   X,   X,   X),
    [EV_ALL_STARTED] = ROW(X,   X,   X,   RUN, X,   o,   o,   o,   o,   o,   o,   X,   X),
    [EV_ALL_EXITED]  = ROW(X,   X,   X,   REA, REA, REA, o,   REA, REA, o,   o,   X,   X),
    [EV_RANK_FAILED] = ROW(X,   X,   X,   JDG, JDG, o,   o,   o,   o,   o,   o,   X,   X),
    [EV_NODE_LOST]   = ROW(X,   REA, REA, JDG, JDG, o,   END, o,   o,   o,   o,   X,   X),
    [EV_STOP]        = ROW(o,   REA, REA, END, END, END, END, o,   o,   o,   o,   o,   o),
    [EV_KILL]        = ROW(o,   REA, REA, KIL, KIL, KIL, KIL, KIL, o,   CUT, o,   o,   o),
    [EV_TIMER]       = ROW(X,   REA, REA, JDG, X,   END, END, KIL, REA, CUT, FAI, X,   X),
    [EV_RESTART]     = ROW(X,   X,   X,   X,   X,   RES, o,   o,   o,   o,   o,   X,   X),
    [EV_CLEARED]     = ROW(X,   X,   X,   X,   X,   X,   SPW, o,   o,   o,   o,   X,   X),
    [EV_DOWN_WELL]   = ROW(X,   X,   X,   X,   X,   X,   X,   X,   X,   DON, DON, X,   X),
    [EV_DOWN_FAILED] = ROW(X,   X,   X,   X,   X,   X,   X,   X,   X,   FAI, FAI, X,   X),
};
/* clang-format on */

int jobstate_next(enum job_state s, enum job_event e)
{
    return next[e][s];
}

const char *jobstate_name(enum job_state s)
{
    return state_names[s];
}

const char *jobevent_name(enum job_event e)
{
    return event_names[e];
}

static void step(struct machine *m, enum job_event e)
{
    enum job_state old = m->state;
    int to = jobstate_next(old, e);
    int64_t now = clock_ms(), spent = now - m->since_ms;

    if (to == JOB_UNEXPECTED)
        m->unexpected(m->ctx, old, e);
    if (to < 0)
        return;
    m->state = (enum job_state)to;
    m->since_ms = now;
    m->enter(m->ctx, m->state, old, e, spent);
}

void machine_post(struct machine *m, enum job_event e)
{
    if (m->queued == JOB_QUEUE) {
        m->unexpected(m->ctx, m->state, e);
        return;
    }
    m->queue[(m->head + m->queued++) % JOB_QUEUE] = e;
    if (m->busy)
        return;
    m->busy = 1;
    while (m->queued) {
        e = m->queue[m->head];
        m->head = (m->head + 1) % JOB_QUEUE;
        m->queued--;
        step(m, e);
    }
    m->busy = 0;
}
