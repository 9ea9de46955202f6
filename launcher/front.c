/* The front end of one job as a whole: made, run, judged, cleared; and what reaches it beside the agents: signals and
 * ticks. One loop thread does all of it. */
#include "launcher/front.h"

#include "engine/base/clock.h"
#include "launcher/keeper.h"
#include "launcher/rundir.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- signals, ticks ---- */

void front_signal(struct front *f, int sig)
{
    if (sig == SIGUSR1 || sig == SIGUSR2) {
        if (!f->task->engine && f->kv)
            front_send_number(f, MSG_SIGNAL, (uint64_t)sig, 4);
        return;
    }
    if (sig == SIGKILL) { /* ds-launch kill --signal KILL */
        f->stop_signal = f->stop_signal ? f->stop_signal : sig;
        machine_post(&f->machine, EV_KILL);
        return;
    }
    if (f->stops++) {
        if (sig == SIGINT)
            machine_post(&f->machine, EV_KILL);
        return;
    }
    f->stop_signal = sig;
    front_say(f, LOG_INFO, "%s: ending the ranks (%s: kill them)", strsignal(sig),
              sig == SIGINT ? "once more" : "SIGINT");
    machine_post(&f->machine, EV_STOP);
}

static void take_signal(void *ctx, int sig)
{
    front_signal(ctx, sig);
}

static void signals_readable(uv_poll_t *p, int status, int events)
{
    struct front *f = p->data;

    if (status < 0 || keeper_signals(f->signal_fd, take_signal, f))
        uv_poll_stop(p);
}

static void ticked(uv_timer_t *t)
{
    struct front *f = t->data;
    struct buf list = BUF_INIT;
    int64_t spent = clock_ms() - f->machine.since_ms;

    front_tick(f);
    if (f->machine.state == JOB_CONNECTING && spent >= 5000 + 30000 * f->waits_said) {
        f->waits_said++;
        front_laggards(f, front_has_hello, &list);
        front_say(f, LOG_INFO, "waiting for %s", buf_str(&list));
    }
    buf_clear(&list);
}

static void partial_fired(uv_timer_t *t)
{
    struct front *f = t->data;

    front_output_tick(f);
}

/* ---- the whole ---- */

static int init(struct front *f, struct err *err)
{
    int64_t tick = f->task->ping_limit_ms / 4 < 1000 ? f->task->ping_limit_ms / 4 : 1000;
    int m;

    f->began_wall = clock_wall();
    f->epoch = f->task->epoch + 1;
    f->restarts = f->task->restarts;
    f->node = xcalloc((size_t)f->place.nodes, sizeof *f->node);
    f->rank = xcalloc((size_t)f->place.world, sizeof *f->rank);
    for (m = 0; m < f->place.nodes; m++)
        f->node[m] = (struct front_node){.front = f, .index = m};
    uv_loop_init(&f->loop);
    f->machine = (struct machine){.since_ms = clock_ms(), .ctx = f, .enter = job_enter,
                                  .unexpected = job_unexpected};
    if (front_output_open(f, err) || (!f->restarts && front_stdin_open(f, err)))
        return -1;
    uv_timer_init(&f->loop, &f->timer);
    uv_timer_init(&f->loop, &f->tick);
    uv_timer_init(&f->loop, &f->partial);
    f->timer.data = f->tick.data = f->partial.data = f;
    uv_timer_start(&f->tick, ticked, (uint64_t)tick / PING_PARTS, (uint64_t)tick / PING_PARTS);
    uv_timer_start(&f->partial, partial_fired, 100, 100);
    uv_poll_init(&f->loop, &f->signals, f->signal_fd);
    f->signals.data = f;
    uv_poll_start(&f->signals, UV_READABLE, signals_readable);
    front_control_open(f);
    return 0;
}

void front_destroy(struct front *f)
{
    int m, turns = 100;

    for (m = 0; m < f->place.nodes; m++) {
        if (f->node[m].ch)
            f->ops->close(f->node[m].ch);
        msg_decoder_clear(&f->node[m].in);
        hello_clear(&f->node[m].hello);
    }
    for (m = 0; m < f->place.world; m++)
        free(f->rank[m].said);
    front_stdin_close(f);
    if (f->ops->destroy)
        f->ops->destroy(f->pool);
    aside_leave(f->folders);
    writer_destroy(f->term);
    writer_destroy(f->files);
    while (uv_run(&f->loop, UV_RUN_NOWAIT) && turns--)
        usleep(10000); /* handles of the spawner that close late */
    uv_loop_close(&f->loop);
    output_destroy(f->output);
    kv_destroy(f->kv);
    address_clear(f->address, f->place.nodes);
    free(f->address);
    front_sites_clear(f);
    free(f->failures);
    buf_clear(&f->frame);
    free(f->rank_host);
    free(f->rank_log);
    front_logs_clear(f);
    free(f->run_dir);
    if (f->run_lock >= 0)
        close(f->run_lock);
    free(f->node);
    for (m = 0; m < f->place.world; m++)
        free(f->rank[m].error);
    free(f->rank);
    place_clear(&f->place);
    free(f);
}

static char *absolute(const char *cwd, const char *path)
{
    return *path == '/' ? xstrdup(path) : xasprintf("%s/%s", cwd, path);
}

struct front *front_create(const struct options *o, struct task *task, const struct hosts *hosts,
                           const struct spawner_ops *ops, int signals, struct err *err)
{
    struct front *f = xcalloc(1, sizeof *f);
    const char *dir = o->run_dir ? o->run_dir : task->job.run_dir;

    f->o = o;
    f->task = task;
    f->hosts = hosts;
    f->ops = ops;
    f->signal_fd = signals;
    f->run_lock = -1;
    if (place_make(&f->place, hosts, err)) {
        free(f);
        return NULL;
    }
    if (init(f, err)) {
        front_destroy(f);
        return NULL;
    }
    if (task->engine)
        f->run_dir = dir ? absolute(task->cwd, dir)
                         : rundir_name(task->cwd, task->name, f->began_wall);
    return f;
}

static void drop_hosts(struct hosts *hosts, const uint8_t *lost)
{
    int m;

    for (m = hosts->n - 1; m >= 0; m--)
        if (lost[m])
            hosts_drop(hosts, m);
}

int front_run(const struct options *o, struct task *task, struct hosts *hosts,
              const struct spawner_ops *ops, int signals)
{
    struct err err = ERR_INIT;
    struct front *f = front_create(o, task, hosts, ops, signals, &err);
    uint8_t *lost = NULL;
    int status;

    if (!f) {
        log_error("%s", err.text);
        return err_exit_code(&err);
    }
    machine_post(&f->machine, EV_BEGIN);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    front_say_cost(f);
    front_output_close(f);
    if (front_may_shrink(f))
        lost = front_shrink(f);
    status = lost ? FRONT_AGAIN : front_verdict(f);
    if (f->files)
        writer_flush(f->files, 10000);
    front_destroy(f);
    if (lost)
        drop_hosts(hosts, lost);
    free(lost);
    return status;
}
