/* The worker: frames in, ranks below it, one loop.
 *
 * The ladder ends everything that was started here: TERM to all descendants, grace, KILL until none
 * is left. Invariants: new ranks start only after the ladder has ended every descendant of the old
 * ones; once ending is set the worker ends after the ladder, whatever else comes; a frame of
 * another epoch than the current one changes nothing. */
#include "launcher/agent/agent.h"
#include "engine/base/clock.h"
#include "launcher/agent/cgroup.h"
#include "launcher/agent/reap.h"
#include "launcher/rankenv.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PING_LIMIT_MS 10000
#define GRACE_MS 3000
#define KILL_LIMIT_MS 5000 /* a process that KILL does not end in this time is the kernel's */
enum { LADDER_NONE, LADDER_TERM, LADDER_KILL };

#define KILL_EVERY_MS 20
#define DRAIN_MS 10000 /* for output that waits for credit at the end */
#define FLUSH_MS 2000  /* for the last frames */

static void agent_end(struct agent *a, const char *why);
static void ladder_done(struct agent *a);

/* ---- what has died */

static void on_dead(void *ctx, pid_t pid, int status)
{
    struct agent *a = ctx;

    if (check_reaped(a, pid, status))
        return;
    for (struct team *t = a->team; t; t = t->next)
        if (team_reaped(t, pid, status))
            return;
}

/* Older teams whose ranks are gone and whose output is sent. */
static void forget_teams(struct agent *a)
{
    struct team **p = a->team ? &a->team->next : NULL;

    while (p && *p) {
        struct team *t = *p;

        if (t->running || team_streams(t)) {
            p = &t->next;
            continue;
        }
        *p = t->next;
        team_destroy(t);
    }
}

static void reap(struct agent *a)
{
    int none = reap_children(on_dead, a);

    forget_teams(a);
    if (none && a->ladder.step != LADDER_NONE)
        ladder_done(a);
}

static void on_child(void *ctx, int signo)
{
    reap(ctx);
}

/* ---- the ladder */

static void kill_all(struct agent *a)
{
    cgroup_kill(a->cgroup);
    reap_signal(SIGKILL, NULL, 0);
}

static void ladder_kill(struct agent *a)
{
    a->ladder.step = LADDER_KILL;
    a->ladder.until = clock_ms() + KILL_LIMIT_MS;
    kill_all(a);
    ticker_set(a->ladder.ticker, KILL_EVERY_MS, KILL_EVERY_MS);
}

/* The kernel holds something: said, and the node is of no more use to this job. */
static void ladder_give_up(struct agent *a)
{
    pid_t pid[4];
    int n = reap_signal(SIGKILL, pid, 4);
    struct err err = ERR_INIT;

    err_set(&err, ERR_NODE,
            "%s: %d processes can't be ended (the first is %d): the kernel or another user "
            "holds them; look at that node",
            a->team ? a->team->spawn.host : "node", n, n ? (int)pid[0] : 0);
    agent_fail(a, a->team ? a->team->epoch : 0, MSG_NODE, &err);
    spawn_clear(&a->next);
    ladder_done(a);
}

static void on_ladder(void *ctx)
{
    struct agent *a = ctx;

    if (a->ladder.step == LADDER_TERM)
        ladder_kill(a);
    else if (clock_ms() > a->ladder.until)
        ladder_give_up(a);
    else
        kill_all(a);
    if (a->ladder.step != LADDER_NONE)
        reap(a);
}

static void ladder_start(struct agent *a, int64_t grace_ms)
{
    int64_t until = clock_ms() + grace_ms;

    for (struct team *t = a->team; t; t = t->next)
        t->failed = 1; /* who has not started yet does not */
    if (a->ladder.step == LADDER_KILL)
        return;
    if (grace_ms <= 0) {
        ladder_kill(a);
    } else if (a->ladder.step == LADDER_NONE || until < a->ladder.until) {
        a->ladder.until = until;
        if (a->ladder.step == LADDER_NONE) {
            reap_signal(SIGTERM, NULL, 0);
            reap_signal(SIGCONT, NULL, 0); /* who is stopped can't take TERM */
        }
        a->ladder.step = LADDER_TERM;
        ticker_set(a->ladder.ticker, grace_ms, 0);
    }
    reap(a);
}

/* ---- the end of the agent itself */

static int streams_open(const struct agent *a)
{
    int n = 0;

    for (const struct team *t = a->team; t; t = t->next)
        n += team_streams(t);
    return n;
}

static void say_bye(struct agent *a)
{
    struct buf b = BUF_INIT;

    put_str(&b, buf_str(&a->why));
    chan_sendb(a->chan, MSG_BYE, a->team ? a->team->epoch : 0, &b);
    a->ending = 2;
    ticker_set(a->end_ticker, FLUSH_MS, 0);
}

/* Every descendant is gone: output that waits for credit, BYE, out. */
static void on_end_ticker(void *ctx)
{
    struct agent *a = ctx;

    if (a->mute || a->ending == 2)
        a->ended(a);
    else if (!streams_open(a) || clock_ms() > a->ladder.until)
        say_bye(a);
}

static void on_drained(void *ctx)
{
    struct agent *a = ctx;

    if (a->ending == 2)
        a->ended(a);
}

static void start_next(struct agent *a)
{
    struct team *t;

    if (!a->next.argc)
        return;
    port_release(a, 1);
    t = team_start(a, a->next_epoch, &a->next);
    t->next = a->team;
    a->team = t;
    forget_teams(a);
    if (a->next_kill)
        ladder_start(a, 0);
    a->next_kill = 0;
}

static void ladder_done(struct agent *a)
{
    a->ladder.step = LADDER_NONE;
    ticker_stop(a->ladder.ticker);
    for (struct team *t = a->team; t; t = t->next)
        for (int i = 0; i < t->n; i++) {
            stream_pump(&t->rank[i].out[0]);
            stream_pump(&t->rank[i].out[1]);
        }
    if (!a->ending) {
        start_next(a);
        return;
    }
    a->ladder.until = clock_ms() + DRAIN_MS;
    ticker_set(a->end_ticker, 0, KILL_EVERY_MS);
}

static void agent_end(struct agent *a, const char *why)
{
    if (a->ending)
        return;
    a->ending = 1;
    buf_adds(&a->why, why);
    ladder_start(a, a->grace_ms);
}

/* For a reason of this node: it is told before the ranks are, or the front end would hear of them first and blame
 * one. */
static void agent_end_here(struct agent *a, const char *why)
{
    struct err err = ERR_INIT;

    if (a->ending)
        return;
    err_set(&err, ERR_NODE, "its agent ended: %s", why);
    agent_fail(a, a->team ? a->team->epoch : 0, MSG_NODE, &err);
    agent_end(a, why);
}

/* ---- frames */

static void on_spawn(struct agent *a, const struct msg *m)
{
    struct err err = ERR_INIT;
    struct spawn s;

    if (spawn_get(&s, m->data, m->len, &err)) {
        agent_fail(a, m->epoch, MSG_NODE, &err);
        return;
    }
    if (a->ending || a->next.argc ||
        (a->team && a->team->running && a->ladder.step == LADDER_NONE)) {
        err_set(&err, ERR_JOB_INTERNAL, "%s: ranks of epoch %u are running still", s.host,
                a->team ? a->team->epoch : 0);
        agent_fail(a, m->epoch, MSG_NODE, &err);
        spawn_clear(&s);
        return;
    }
    if (a->env)
        venv_late(&s);
    a->ping_limit_ms = s.ping_limit_ms > 0 ? s.ping_limit_ms : PING_LIMIT_MS;
    a->grace_ms = s.grace_ms >= 0 ? s.grace_ms : GRACE_MS;
    a->next = s;
    a->next_epoch = m->epoch;
    ladder_start(a, 0); /* nothing of an earlier epoch is left when the new ranks start */
}

static void on_check(struct agent *a, const struct msg *m)
{
    struct err err = ERR_INIT;
    struct spawn s;

    if (spawn_get(&s, m->data, m->len, &err) == 0) {
        check_start(a, m->epoch, &s);
        return;
    }
    tell_checked(a, m->epoch, err.code, err.text);
}

static void on_ping(struct agent *a, const struct msg *m)
{
    struct buf b = BUF_INIT;

    buf_add(&b, m->data, m->len);
    put_f64(&b, clock_wall());
    chan_sendb(a->chan, MSG_PONG, m->epoch, &b);
}

static void on_key(struct agent *a, const struct msg *m, struct reader *r)
{
    char *key = get_str(r);
    uint32_t n;
    const uint8_t *value;

    if (a->team->links && !r->failed && m->type == MSG_VALUE) {
        value = get_bytes(r, &n);
        if (!r->failed)
            links_value(a->team->links, key, value, n);
    } else if (a->team->links && !r->failed) {
        links_fenced(a->team->links, key);
    }
    free(key);
}

/* Frames about the current ranks. */
static void on_team_frame(struct agent *a, const struct msg *m)
{
    struct reader r = reader_of(m->data, m->len);
    uint32_t v;

    switch (m->type) {
    case MSG_SIGNAL:
        v = get_u32(&r);
        if (v >= 1 && v < NSIG)
            team_signal(a->team, (int)v);
        break;
    case MSG_STOP:
        v = get_u32(&r);
        if (a->team->links && !r.failed)
            links_stop(a->team->links, v);
        break;
    case MSG_STDIN:
        v = get_u32(&r);
        if (!r.failed)
            team_stdin(a->team, (int)v, r.p, (size_t)(r.end - r.p));
        break;
    default: /* VALUE, FENCED */
        on_key(a, m, &r);
    }
}

static void on_kill(struct agent *a, const struct msg *m)
{
    struct reader r = reader_of(m->data, m->len);
    uint64_t grace = get_u64(&r);

    if (a->next.argc && m->epoch == a->next_epoch)
        a->next_kill = 1;
    else if (a->team && m->epoch == a->team->epoch)
        ladder_start(a, grace > INT32_MAX ? INT32_MAX : (int64_t)grace);
}

/* The port that was held stays so until new ranks start: what is left of the old ones may be there still. */
static void on_hold(struct agent *a, const struct msg *m)
{
    struct buf b = BUF_INIT;

    put_u32(&b, (uint32_t)port_hold(a, 0));
    chan_sendb(a->chan, MSG_HELD, m->epoch, &b);
}

static void on_credit(struct agent *a, const struct msg *m)
{
    struct reader r = reader_of(m->data, m->len);

    a->credit += get_u32(&r);
    pump_credit(a);
}

/* On stderr, where it is heard now that the channel is up. */
static void say_news(struct agent *a)
{
    const char *news = cgroup_news(a->cgroup);
    struct buf line = BUF_INIT;

    if (news)
        buf_addf(&line, "%s\n", news);
    if (news && write(STDERR_FILENO, line.data, line.len) < 0)
        a->status = 1;
    buf_clear(&line);
}

static void on_msg(void *ctx, const struct msg *m)
{
    struct agent *a = ctx;

    say_news(a);
    switch (m->type) {
    case MSG_CHECK:
        on_check(a, m);
        break;
    case MSG_SPAWN:
        on_spawn(a, m);
        break;
    case MSG_KILL:
        on_kill(a, m);
        break;
    case MSG_CREDIT:
        on_credit(a, m);
        break;
    case MSG_HOLD:
        on_hold(a, m);
        break;
    case MSG_PING:
        on_ping(a, m);
        break;
    case MSG_END:
        agent_end(a, "ds-launch asked for it");
        break;
    case MSG_SIGNAL:
    case MSG_STOP:
    case MSG_STDIN:
    case MSG_VALUE:
    case MSG_FENCED:
        if (a->team && a->team->epoch == m->epoch)
            on_team_frame(a, m);
        break;
    default: /* an agent's own: an echo of ours */
        agent_end(a, "the front end sent a frame that only agents send");
    }
}

/* ---- what can end us */

static void on_down(void *ctx, const char *why)
{
    struct agent *a = ctx;

    a->mute = 1;
    agent_end(a, why);
}

static void on_ping_ticker(void *ctx)
{
    struct agent *a = ctx;

    /* the loop calls timers before descriptors: after a pause of ours, what came meanwhile counts
     */
    if (!a->mute && !a->ending && clock_ms() - chan_poll(a->chan) > a->ping_limit_ms)
        on_down(a, "no word from ds-launch within the ping limit");
}

static void on_keeper(void *ctx, int events)
{
    struct agent *a = ctx;

    watch_set(a->keeper, 0);
    a->status = 1;
    agent_end_here(a, "its keeper is gone");
    ladder_start(a, 0);
}

static void on_signal(void *ctx, int signo)
{
    agent_end_here(ctx, "it was told to by a signal");
}

/* ---- life */

int agent_open(struct agent *a, struct loop *loop, int in, int out, struct err *err)
{
    static const struct chan_events events = {on_msg, on_down, on_drained};

    a->loop = loop;
    a->ping_limit_ms = PING_LIMIT_MS;
    a->grace_ms = GRACE_MS;
    a->ladder.ticker = ticker_create(loop, on_ladder, a);
    a->ping_ticker = ticker_create(loop, on_ping_ticker, a);
    a->end_ticker = ticker_create(loop, on_end_ticker, a);
    a->tail_ticker = ticker_create(loop, pump_tails, a);
    ticker_set(a->ping_ticker, 250, 250);
    a->chan = chan_create(loop, in, out, &events, a, err);
    return a->chan ? 0 : err_prefix(err, "the channel (stdin and stdout must be pipes or sockets)");
}

void agent_close(struct agent *a)
{
    while (a->team) {
        struct team *t = a->team;

        a->team = t->next;
        team_destroy(t);
    }
    check_destroy(a->check);
    rankenv_free(a->env);
    spawn_clear(&a->next);
    port_release(a, 0);
    chan_destroy(a->chan);
    ticker_destroy(a->ladder.ticker);
    ticker_destroy(a->ping_ticker);
    ticker_destroy(a->end_ticker);
    ticker_destroy(a->tail_ticker);
    buf_clear(&a->why);
}

void agent_greet(struct agent *a, const struct hello *h)
{
    struct buf b = BUF_INIT;

    hello_put(&b, h);
    chan_raw(a->chan, MSG_MAGIC, sizeof MSG_MAGIC - 1);
    chan_sendb(a->chan, MSG_HELLO, 0, &b);
}

static int worker_open(struct agent *a, int keeper_fd, struct err *err)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP};
    struct loop *loop = loop_create();

    a->loop = loop;
    if (!loop)
        return err_set(err, ERR_NODE, "the event loop cannot be made: %m");
    if (loop_signal(loop, SIGCHLD, on_child, a, err))
        return -1;
    for (int i = 0; i < 3; i++)
        if (loop_signal(loop, ends[i], on_signal, a, err))
            return -1;
    a->keeper = watch_create(loop, keeper_fd, on_keeper, a, err);
    if (!a->keeper)
        return -1;
    watch_set(a->keeper, LOOP_READ);
    return agent_open(a, loop, STDIN_FILENO, STDOUT_FILENO, err);
}

static void worker_ended(struct agent *a)
{
    loop_stop(a->loop);
}

static void worker_close(struct agent *a)
{
    agent_close(a);
    oom_destroy(a->oom);
    watch_destroy(a->keeper);
    loop_destroy(a->loop);
    cgroup_remove(a->cgroup);
}

int worker_run(int keeper_fd, struct cgroup *cgroup)
{
    struct agent a;
    struct err err = ERR_INIT;
    struct hello hello;

    memset(&a, 0, sizeof a);
    a.ended = worker_ended;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setsid();
    signal(SIGPIPE, SIG_IGN);
    a.cgroup = cgroup;
    a.cores = node_cores();
    a.oom = oom_create();
    if (worker_open(&a, keeper_fd, &err)) {
        static const char name[] = "ds-agent: ";

        if (write(STDERR_FILENO, name, sizeof name - 1) < 0 ||
            write(STDERR_FILENO, err.text, strlen(err.text)) < 0 ||
            write(STDERR_FILENO, "\n", 1) < 0)
            a.status = 1;
        a.status = 1;
    } else {
        node_hello(&hello);
        hello.port = port_hold(&a, 0);
        agent_greet(&a, &hello);
        hello_clear(&hello);
        loop_run(a.loop);
    }
    worker_close(&a);
    return a.status;
}
