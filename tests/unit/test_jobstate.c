/* The job's state machine: a walk over the whole table, and the judge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/jobstate.h"
#include "launcher/judge.h"

#include <string.h>

/* Laws that hold in every state, whatever the table's author thought. */
static void whole_table(void **state)
{
    int s, e, to;
    (void)state;

    for (s = 0; s < JOB_STATES; s++)
        for (e = 0; e < JOB_EVENTS; e++) {
            to = jobstate_next(s, e);
            assert_in_range(to + 2, 0, JOB_STATES + 1);
            /* the way leads forward only, so every job ends; but for a restart, and of these there is a number */
            if (to >= 0 && to != s && e != EV_CLEARED)
                assert_true(to > s);
            /* nothing leaves the end */
            if (s >= JOB_DONE)
                assert_true(to < 0);
            /* what the world does at its own time is never a surprise once ranks may run */
            if (s >= JOB_SPAWNING && s < JOB_DONE && (e == EV_NODE_LOST || e == EV_RANK_FAILED))
                assert_int_not_equal(to, JOB_UNEXPECTED);
            /* neither is the user, ever */
            if (e == EV_STOP || e == EV_KILL)
                assert_int_not_equal(to, JOB_UNEXPECTED);
            /* ranks start after the checks only */
            if (to == JOB_SPAWNING)
                assert_true((s == JOB_CHECKING && e == EV_ALL_CHECKED) || (s == JOB_RESTARTING && e == EV_CLEARED));
            /* what is restarted had failed */
            if (to == JOB_RESTARTING)
                assert_true(s == JOB_JUDGING && e == EV_RESTART);
            /* done means that nothing failed */
            if (to == JOB_DONE)
                assert_int_equal(e, EV_DOWN_WELL);
        }
}

/* Deadlines alone bring every state but running to the end (running waits for its ranks). */
static void timers_end_it(void **state)
{
    int s, at, n;
    (void)state;

    for (s = JOB_CONNECTING; s < JOB_DONE; s++) {
        if (s == JOB_RUNNING)
            continue;
        for (at = s, n = 0; at < JOB_DONE && n < 10; n++)
            at = jobstate_next(at, EV_TIMER);
        assert_int_equal(at, JOB_FAILED);
    }
}

static void names(void **state)
{
    int i, k;
    (void)state;

    for (i = 0; i < JOB_STATES; i++)
        for (k = 0; k < i; k++)
            assert_string_not_equal(jobstate_name(i), jobstate_name(k));
    for (i = 0; i < JOB_EVENTS; i++)
        for (k = 0; k < i; k++)
            assert_string_not_equal(jobevent_name(i), jobevent_name(k));
}

struct record {
    struct machine m;
    char path[256];
    int unexpected;
};

/* An action that posts: the event waits until the action is over. */
static void enter(void *ctx, enum job_state s, enum job_state old, enum job_event e, int64_t ms)
{
    struct record *r = ctx;

    (void)old;
    (void)e;
    assert_true(ms >= 0);
    if (s == JOB_CHECKING)
        machine_post(&r->m, EV_ALL_CHECKED);
    strcat(strcat(r->path, jobstate_name(s)), " ");
}

static void unexpected(void *ctx, enum job_state s, enum job_event e)
{
    (void)s;
    (void)e;
    ((struct record *)ctx)->unexpected++;
}

static void runs(void **state)
{
    static const enum job_event events[] = {EV_BEGIN, EV_ALL_UP, EV_ALL_STARTED, EV_RANK_FAILED,
                                            EV_RANK_FAILED, EV_TIMER, EV_ALL_EXITED, EV_DOWN_FAILED};
    struct record r = {.m = {.enter = enter, .unexpected = unexpected}};
    size_t i;
    (void)state;

    r.m.ctx = &r;
    for (i = 0; i < sizeof events / sizeof events[0]; i++)
        machine_post(&r.m, events[i]);
    assert_string_equal(r.path, "connecting checking spawning running judging ending reaping failed ");
    assert_int_equal(r.unexpected, 0);
    machine_post(&r.m, EV_ALL_UP);
    assert_int_equal(r.unexpected, 1);
    assert_int_equal(r.m.state, JOB_FAILED);
}

static void judges(void **state)
{
    static const struct failure f[] = {
        {FAILED_PEER, 0, 0, 1.0}, {FAILED_CODE, 1, 0, 2.0}, {FAILED_SIGNAL, 2, 1, 3.0},
        {FAILED_SIGNAL, 3, 1, 2.5}, {FAILED_HOST, -1, 2, 9.0},
    };
    (void)state;

    assert_int_equal(judge(f, 5, 1), 4); /* the host, though noticed last */
    assert_int_equal(judge(f, 4, 1), 3); /* the earlier signal */
    assert_int_equal(judge(f, 2, 1), 1); /* its own code before a lost peer */
    assert_int_equal(judge(f, 1, 1), 0);
    assert_int_equal(judge(f, 4, 0), 0); /* a foreign program: the earliest */
    assert_int_equal(judge(f, 5, 0), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_table), cmocka_unit_test(timers_end_it), cmocka_unit_test(names),
        cmocka_unit_test(runs), cmocka_unit_test(judges),
    };

    return cmocka_run_group_tests_name("jobstate", tests, NULL, NULL);
}
