/* One job from its first connection to its end: the actions of the state machine (jobstate.c has its tables).
 *
 * Invariants: a node's channel is closed only at the very end; whatever happens, the machine comes to done or failed,
 * because every state but running has a deadline. */
#include "launcher/front.h"

#include "engine/base/boot.h"
#include "engine/base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINK_MS 300 /* a spawner whose time is up tells more than that */
#define CHECK_MS 120000
#define SPAWN_MS 60000
#define JUDGE_MS 300
#define KILL_MS 10000
#define REAP_MS 10000
#define CUT_MS 10000
#define EXTRA_MS 2000 /* what agents get beyond a time they keep themselves */

void front_send(struct front *f, int node, enum msg_type type, const void *data, size_t n)
{
    if (!f->node[node].ch || f->node[node].down)
        return;
    msg_put(&f->frame, type, f->epoch, data, n);
    f->ops->send(f->node[node].ch, f->frame.data, f->frame.len);
    f->bytes_to += f->frame.len;
    buf_reset(&f->frame);
}

void front_send_all(struct front *f, enum msg_type type, const void *data, size_t n)
{
    int m;

    for (m = 0; m < f->place.nodes; m++)
        front_send(f, m, type, data, n);
}

void front_send_number(struct front *f, enum msg_type type, uint64_t v, int bytes)
{
    struct buf b = BUF_INIT;

    if (bytes == 8)
        put_u64(&b, v);
    else
        put_u32(&b, (uint32_t)v);
    front_send_all(f, type, b.data, b.len);
    buf_clear(&b);
}

static void trouble(struct front *f, const struct err *err)
{
    if (!f->trouble.code)
        f->trouble = *err;
}

/* ---- who we wait for ---- */

int front_has_hello(const struct front_node *nd)
{
    return nd->up || nd->down == 2;
}

static int has_checked(const struct front_node *nd)
{
    return nd->checked;
}

static int has_started(const struct front_node *nd)
{
    const struct place *p = &nd->front->place;
    int r;

    for (r = p->first[nd->index]; r < p->first[nd->index + 1]; r++)
        if (!nd->front->rank[r].started)
            return 0;
    return 1;
}

static int has_exited(const struct front_node *nd)
{
    const struct place *p = &nd->front->place;
    int r;

    for (r = p->first[nd->index]; r < p->first[nd->index + 1]; r++)
        if (!nd->front->rank[r].exited)
            return 0;
    return 1;
}

static int is_down(const struct front_node *nd)
{
    return nd->down;
}

/* The state's deadline has passed: says who is late. */
static void say_late(struct front *f)
{
    static const struct {
        int (*has)(const struct front_node *);
        const char *what;
    } late[JOB_STATES] = {
        [JOB_CONNECTING] = {front_has_hello, "no answer"},
        [JOB_CHECKING] = {has_checked, "the checks are not done"},
        [JOB_SPAWNING] = {has_started, "ranks did not start"},
        [JOB_RESTARTING] = {has_exited, "ranks did not end and cannot be started again"},
        [JOB_ENDING] = {has_exited, "ranks did not end within the grace time and are killed"},
        [JOB_KILLING] = {has_exited, "ranks did not end after SIGKILL"},
        [JOB_REAPING] = {is_down, "the agent does not end and is cut off"},
        [JOB_CUTTING] = {is_down, "the channel does not close"},
    };
    enum job_state s = f->machine.state;
    struct buf list = BUF_INIT;
    struct err err = ERR_INIT;
    int64_t spent = clock_ms() - f->machine.since_ms;

    if (!late[s].has)
        return;
    front_laggards(f, late[s].has, &list);
    if (s == JOB_CHECKING && f->folders)
        err_set(&err, ERR_JOB_IO, "the folders for logs and results are not made after %.1f s: does their file system "
                "hang? Give others with --run-dir, --log-dir or --enable-each-rank-log", (double)spent / 1000);
    else if (list.len)
        err_set(&err, ERR_NODE, "%s: %s after %.1f s%s", buf_str(&list), late[s].what, (double)spent / 1000,
                s == JOB_CHECKING ? "; look at the file systems there" : "");
    if (err.code && (s == JOB_CONNECTING || s == JOB_CHECKING || s == JOB_SPAWNING || s == JOB_RESTARTING))
        trouble(f, &err);
    else if (err.code)
        front_say(f, LOG_WARN, "%s", err.text);
    buf_clear(&list);
}

static void timer_fired(uv_timer_t *t)
{
    front_deadline(t->data);
}

void front_deadline_in(struct front *f, int64_t ms)
{
    uv_timer_start(&f->timer, timer_fired, (uint64_t)ms, 0);
}

void front_deadline(struct front *f)
{
    /* Ctrl-S at the end: the agents wait for credit, and we for the user. */
    if ((f->machine.state == JOB_REAPING || f->machine.state == JOB_RESTARTING) && writer_pending(f->term)) {
        front_deadline_in(f, REAP_MS);
        return;
    }
    f->late |= f->machine.state == JOB_CONNECTING;
    say_late(f);
    machine_post(&f->machine, f->machine.state == JOB_JUDGING && front_may_restart(f) ? EV_RESTART : EV_TIMER);
}

/* ---- actions ---- */

static void do_connect(struct front *f)
{
    struct err err = ERR_INIT;
    int m;

    if (f->ops->create && f->ops->create(&f->pool, &f->loop, f->o, &err)) {
        trouble(f, &err);
        machine_post(&f->machine, EV_STOP);
        return;
    }
    for (m = 0; m < f->place.nodes; m++)
        if (f->ops->open(&f->node[m].ch, f->pool, &f->loop, f->o, &f->hosts->host[m], m, &agent_events,
                         &f->node[m], &err)) {
            f->downs++;
            front_node_lost(f, m, &err);
        }
}

static void do_check(struct front *f)
{
    struct err err = ERR_INIT;

    if (front_addresses(f, &err))
        trouble(f, &err);
    else
        f->check_failures = front_sites(f);
    if (err.code || f->check_failures) {
        machine_post(&f->machine, EV_CHECK_FAILED);
        return;
    }
    front_send_spawn(f, MSG_CHECK);
}

static void kv_value(void *ctx, int node, const char *key, const void *value, size_t n)
{
    struct buf b = BUF_INIT;

    put_str(&b, key);
    put_bytes(&b, value, (uint32_t)n);
    front_send(ctx, node, MSG_VALUE, b.data, b.len);
    buf_clear(&b);
}

static void kv_fenced(void *ctx, int node, const char *name)
{
    struct buf b = BUF_INIT;

    put_str(&b, name);
    front_send(ctx, node, MSG_FENCED, b.data, b.len);
    buf_clear(&b);
}

/* Every node has answered the check. */
void front_checks_done(struct front *f)
{
    if (f->machine.state != JOB_CHECKING)
        return;
    if (f->check_failures)
        machine_post(&f->machine, EV_CHECK_FAILED);
    else if (f->o->dry_run)
        machine_post(&f->machine, EV_NO_RUN);
    else
        front_make_folders(f);
}

void front_folders_made(struct front *f, const struct err *err)
{
    struct err e = *err;

    if (f->machine.state != JOB_CHECKING)
        return;
    if (e.code || front_output_logs(f, &e))
        trouble(f, &e);
    machine_post(&f->machine, e.code ? EV_CHECK_FAILED : EV_ALL_CHECKED);
}

static void do_spawn(struct front *f)
{
    static const struct kv_out out = {kv_value, kv_fenced};
    struct buf hosts = BUF_INIT;

    hosts_print_list(f->hosts, &hosts);
    while (hosts.len && hosts.data[hosts.len - 1] == '\n')
        hosts.data[--hosts.len] = 0;
    front_event(f, "epoch_begin", ",\"hosts\":\"%s\",\"world\":%d", buf_str(&hosts), f->place.world);
    buf_clear(&hosts);
    kv_destroy(f->kv);
    f->kv = kv_create(f->place.nodes, f->place.world, &out, f);
    front_logs_attempt(f);
    front_send_spawn(f, MSG_SPAWN);
}

/* The user's signal goes to the programs as it is; the engine is asked to stop after its step. */
static void do_end(struct front *f, int64_t grace_ms)
{
    if (!f->stop_signal)
        front_send_number(f, MSG_KILL, (uint64_t)grace_ms, 8);
    else if (f->task->engine)
        front_send_number(f, MSG_STOP, STOP_SIGNAL, 4);
    else
        front_send_number(f, MSG_SIGNAL, (uint64_t)(f->stop_signal == SIGPIPE ? SIGTERM : f->stop_signal), 4);
}

/* Posts the last event when every channel is down. */
void front_count_down(struct front *f)
{
    int failed = f->nfailures || f->trouble.code || f->losses || f->check_failures;

    if (f->machine.state >= JOB_REAPING && f->downs == f->place.nodes)
        machine_post(&f->machine, failed ? EV_DOWN_FAILED : EV_DOWN_WELL);
}

static void do_reap(struct front *f)
{
    int m;

    front_stdin_close(f);
    for (m = 0; m < f->place.nodes; m++) {
        struct front_node *nd = &f->node[m];

        if (nd->ch && !nd->up)
            f->ops->shut(nd->ch); /* it may never come to reading an END */
        if (!nd->ch && !nd->down) {
            nd->down = 1;
            f->downs++;
        }
    }
    front_send_all(f, MSG_END, NULL, 0);
    front_count_down(f);
}

static void do_cut(struct front *f)
{
    int m;

    for (m = 0; m < f->place.nodes; m++)
        if (f->node[m].ch && !f->node[m].down)
            f->ops->shut(f->node[m].ch);
}

/* Between two epochs there may be no rank whose end would be heard of. */
static void none_left(struct front *f)
{
    if (f->exits == f->place.world)
        machine_post(&f->machine, EV_ALL_EXITED);
}

static void closed(uv_handle_t *h)
{
}

static void do_finish(struct front *f)
{
    uv_close((uv_handle_t *)&f->timer, closed);
    uv_close((uv_handle_t *)&f->tick, closed);
    uv_close((uv_handle_t *)&f->partial, closed);
    uv_close((uv_handle_t *)&f->signals, closed);
    control_close(f->control);
    f->control = NULL;
    uv_stop(&f->loop);
}

void job_enter(void *ctx, enum job_state s, enum job_state old, enum job_event e, int64_t spent_ms)
{
    struct front *f = ctx;
    int64_t grace_ms;

    front_say(f, LOG_DEBUG, "%s -> %s (%s) after %lld ms", jobstate_name(old), jobstate_name(s),
              jobevent_name(e), (long long)spent_ms);
    f->spent_ms[old] += spent_ms;
    uv_timer_stop(&f->timer);
    switch (s) {
    case JOB_CONNECTING:
        front_deadline_in(f, f->task->connect_timeout_ms + LINK_MS);
        do_connect(f);
        break;
    case JOB_CHECKING:
        front_deadline_in(f, CHECK_MS);
        do_check(f);
        break;
    case JOB_SPAWNING:
        front_deadline_in(f, SPAWN_MS);
        if (old == JOB_RESTARTING)
            front_new_epoch(f);
        do_spawn(f);
        if (old != JOB_RESTARTING)
            front_grant(f);
        break;
    case JOB_JUDGING:
        front_deadline_in(f, JUDGE_MS);
        break;
    case JOB_RESTARTING:
        front_deadline_in(f, RESTART_GRACE_MS + KILL_MS);
        front_restart(f);
        break;
    case JOB_ENDING:
        grace_ms = front_may_shrink(f) ? RESTART_GRACE_MS : f->task->grace_ms;
        front_deadline_in(f, grace_ms + (f->stop_signal ? 0 : EXTRA_MS));
        do_end(f, grace_ms);
        none_left(f);
        break;
    case JOB_KILLING:
        front_deadline_in(f, KILL_MS);
        front_send_number(f, MSG_KILL, 0, 8);
        none_left(f);
        break;
    case JOB_REAPING:
        front_deadline_in(f, REAP_MS);
        do_reap(f);
        break;
    case JOB_CUTTING:
        front_deadline_in(f, CUT_MS);
        do_cut(f);
        break;
    case JOB_DONE:
    case JOB_FAILED:
        do_finish(f);
        break;
    default: /* running has no deadline and no action: its ranks do it */
        break;
    }
}

void job_unexpected(void *ctx, enum job_state s, enum job_event e)
{
    struct front *f = ctx;

    f->bug = 1;
    front_say(f, LOG_ERROR, "a bug: event '%s' in state '%s'; the job goes on", jobevent_name(e),
              jobstate_name(s));
}
