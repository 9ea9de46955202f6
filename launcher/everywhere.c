/* One command on every host: see everywhere.h.
 *
 * Every host has its own small life: connecting > running > ending > down, and a deadline in each. Invariants: every
 * host comes down, and what is said of it is said once; output moves against credit as in a job, and what is kept
 * of a host is bounded (gather.h). */
#include "launcher/everywhere.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "hostfile/nodelist.h"
#include "launcher/control.h"
#include "launcher/gather.h"
#include "launcher/keeper.h"
#include "launcher/msg.h"
#include "launcher/spawn.h"
#include "launcher/writer.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define EPOCH 1
#define TICK_MS 100
#define CONNECT_MS 30000
#define PING_LIMIT_MS 10000
#define GRACE_MS 5000
#define END_MS 15000 /* for the agent to end, its last output included */
#define CREDIT (256u << 10)
#define NOT_REACHED 255
#define OUT_OF_TIME 124

enum host_state { CONNECTING, RUNNING, ENDING, CUTTING, DOWN };

struct host_run {
    struct everywhere *all;
    int index;
    enum host_state state;
    int64_t until, heard_ms, out_of_time; /* clock_ms; 0: none */
    struct channel *ch;
    struct msg_decoder in;
    int exited, status;
    int64_t credit; /* as its agent counts it */
    struct err why; /* what is said of it */
};

struct everywhere {
    const struct options *o;
    const struct hosts *hosts;
    const struct spawner_ops *ops;
    void *pool;
    uv_loop_t loop;
    uv_timer_t tick;
    uv_poll_t signals;
    int signal_fd, stop_signal, n, down;
    int64_t connect_ms, ping_limit_ms, grace_ms, pinged_ms;
    struct host_run *host;
    char **names;
    const struct command *command;
    struct gather *gather;
    struct writer *term;
    struct sink *out[3];
    struct control *control;
    char id[16];
    double began;
};

static void say(struct host_run *h, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void say(struct host_run *h, int status, const char *fmt, ...)
{
    va_list ap;

    if (status > h->status)
        h->status = status;
    if (h->why.code)
        return;
    va_start(ap, fmt);
    err_vset(&h->why, ERR_NODE, fmt, ap);
    va_end(ap);
}

static void send_frame(struct host_run *h, enum msg_type type, const struct buf *body)
{
    struct buf frame = BUF_INIT;

    if (h->ch && h->state != DOWN) {
        msg_put(&frame, type, EPOCH, body ? buf_str(body) : NULL, body ? body->len : 0);
        h->all->ops->send(h->ch, frame.data, frame.len);
    }
    buf_clear(&frame);
}

static void send_number(struct host_run *h, enum msg_type type, uint64_t v, int bytes)
{
    struct buf b = BUF_INIT;

    if (bytes == 8)
        put_u64(&b, v);
    else
        put_u32(&b, (uint32_t)v);
    send_frame(h, type, &b);
    buf_clear(&b);
}

/* ---- a host's life */

static void host_down(struct host_run *h)
{
    struct everywhere *all = h->all;

    if (h->state == DOWN)
        return;
    if (!h->exited && !h->why.code && !all->stop_signal)
        say(h, NOT_REACHED, "its agent ended without a word");
    h->state = DOWN;
    gather_end(all->gather, h->index, h->status, h->why.text);
    if (++all->down == all->n)
        uv_stop(&all->loop);
}

static void host_cut(struct host_run *h)
{
    if (h->state >= CUTTING)
        return;
    h->state = CUTTING;
    h->until = clock_ms() + END_MS;
    if (h->ch)
        h->all->ops->shut(h->ch);
    else
        host_down(h);
}

static void give_credit(struct host_run *h, size_t bytes)
{
    h->credit += (int64_t)bytes;
    send_number(h, MSG_CREDIT, bytes, 4);
}

static void host_start(struct host_run *h)
{
    struct everywhere *all = h->all;
    int64_t limit = all->o->timeout_ms;
    struct spawn_rank rank = {0, 0, -1, ""};
    struct buf b = BUF_INIT;
    int node_of = 0;
    struct spawn s = {.job_id = all->id, .host = all->names[h->index], .world = 1, .nodes = 1,
                      .node_of = &node_of, .address = "127.0.0.1", .interface = "", .master_addr = "127.0.0.1",
                      .grace_ms = all->grace_ms, .ping_limit_ms = all->ping_limit_ms, .stdin_rank = -1,
                      .argv = all->command->argv, .argc = all->command->argc, .cwd = "", .umask = -1,
                      .env = all->command->env.item, .nenv = all->command->env.n, .rank = &rank, .nranks = 1};

    spawn_put(&b, &s);
    send_frame(h, MSG_SPAWN, &b);
    give_credit(h, CREDIT);
    h->state = RUNNING;
    h->until = limit > 0 ? clock_ms() + limit : 0;
    buf_clear(&b);
}

static void host_end(struct host_run *h)
{
    if (h->state >= ENDING)
        return;
    h->state = ENDING;
    h->until = clock_ms() + END_MS;
    send_frame(h, MSG_END, NULL);
}

/* ---- frames */

static int on_hello(struct host_run *h, const struct msg *m, struct err *err)
{
    struct hello hello;

    if (h->state != CONNECTING)
        return h->state == RUNNING ? err_set(err, ERR_NODE, "its agent greets twice") : 0;
    if (hello_get(&hello, m->data, m->len, err))
        return -1;
    hello_clear(&hello);
    if (h->all->stop_signal)
        host_end(h);
    else
        host_start(h);
    return 0;
}

static int malformed(struct err *err)
{
    return err_set(err, ERR_NODE, "its agent sends a malformed frame: is its memory sound?");
}

static int on_output(struct host_run *h, struct reader *r, struct err *err)
{
    struct everywhere *all = h->all;
    int stream = get_u8(r);
    size_t n = (size_t)(r->end - r->p);

    if (r->failed || (stream != 1 && stream != 2))
        return malformed(err);
    if (!n)
        return 0;
    h->credit -= (int64_t)n;
    if (h->credit < -3 * (int64_t)MSG_OVERDRAW_BYTES) /* by a line, and what its two streams end with */
        return err_set(err, ERR_NODE, "its agent sends more output than it was given credit for");
    gather_feed(all->gather, h->index, stream, (const char *)r->p, n);
    if (all->o->live)
        writer_put(all->term, all->out[stream], NULL, 0, h->index, n);
    else
        give_credit(h, n);
    return 0;
}

static int on_exit_frame(struct host_run *h, struct reader *r, struct err *err)
{
    struct rank_end end;

    if (rank_end_get(r, &end))
        return malformed(err);
    if (h->exited)
        return 0;
    h->exited = 1;
    if (h->out_of_time)
        say(h, OUT_OF_TIME, "ended after the time limit");
    else if (end.signal && !h->all->stop_signal)
        say(h, 128 + end.signal, "killed by signal %d (%s)%s", end.signal, strsignal(end.signal),
            end.oom ? ": out of memory, the kernel chose it" : "");
    else if (end.code && !h->all->stop_signal)
        say(h, end.code, "ended with code %d", end.code);
    host_end(h);
    return 0;
}

static int on_fail(struct host_run *h, struct reader *r, struct err *err)
{
    char *text;
    int rc;

    get_u32(r); /* what is lost: the host, whatever it is */
    text = get_str(r);
    rc = reader_done(r) ? 0 : malformed(err);
    if (!rc)
        say(h, 127, "%s", err_unprefix(text, h->all->names[h->index]));
    free(text);
    return rc;
}

/* Frames about the host's one rank. */
static int on_rank_frame(struct host_run *h, const struct msg *m, struct err *err)
{
    struct reader r = reader_of(m->data, m->len);
    uint32_t rank = get_u32(&r);

    if (r.failed || (rank && !(m->type == MSG_FAIL && rank == MSG_NODE)))
        return err_set(err, ERR_NODE, "its agent speaks of rank %u, which is none of its own", rank);
    return m->type == MSG_OUTPUT ? on_output(h, &r, err)
           : m->type == MSG_EXIT ? on_exit_frame(h, &r, err)
                                 : on_fail(h, &r, err);
}

static int on_frame(struct host_run *h, const struct msg *m, struct err *err)
{
    if (h->state == CONNECTING && m->type != MSG_HELLO && m->type != MSG_BYE)
        return err_set(err, ERR_NODE, "its agent does not greet first");
    switch (m->type) {
    case MSG_HELLO:
        return on_hello(h, m, err);
    case MSG_OUTPUT:
    case MSG_EXIT:
    case MSG_FAIL:
        return on_rank_frame(h, m, err);
    default: /* started, pong, bye, want */
        return 0;
    }
}

static void channel_up(void *ctx)
{
    struct host_run *h = ctx;

    h->heard_ms = clock_ms();
}

static void channel_data(void *ctx, const void *data, size_t n)
{
    struct host_run *h = ctx;
    struct err err = ERR_INIT;
    struct msg m;
    int rc = 1;

    if (h->state >= CUTTING)
        return;
    h->heard_ms = clock_ms();
    msg_feed(&h->in, data, n);
    while (rc > 0 && (rc = msg_next(&h->in, &m, &err)) > 0)
        if (on_frame(h, &m, &err))
            rc = -1;
    if (rc < 0) {
        say(h, NOT_REACHED, "%s", err.text);
        host_cut(h);
    }
}

static void channel_stderr(void *ctx, const char *line)
{
    struct host_run *h = ctx;

    log_info("agent on %s: %s", h->all->names[h->index], line);
}

static void channel_down(void *ctx, const struct err *why)
{
    struct host_run *h = ctx;

    if (!h->exited && why->code)
        say(h, NOT_REACHED, "%s", why->text);
    host_down(h);
}

/* ---- deadlines, signals */

static void host_late(struct host_run *h, int64_t now)
{
    struct everywhere *all = h->all;

    if (h->state == CONNECTING) {
        say(h, NOT_REACHED, "no answer within %.1f s", (double)all->connect_ms / 1000);
        host_cut(h);
    } else if (h->state == RUNNING) {
        h->out_of_time = now;
        h->until = now + all->grace_ms + END_MS;
        send_number(h, MSG_KILL, (uint64_t)all->grace_ms, 8);
    } else if (h->state == ENDING) {
        host_cut(h);
    } else {
        host_down(h);
    }
}

static void ticked(uv_timer_t *t)
{
    struct everywhere *all = t->data;
    int64_t now = clock_ms();
    int i, ping = now - all->pinged_ms >= 1000;

    all->pinged_ms = ping ? now : all->pinged_ms;
    for (i = 0; i < all->n; i++) {
        struct host_run *h = &all->host[i];

        if (h->state == DOWN)
            continue;
        if (h->state == RUNNING && ping)
            send_number(h, MSG_PING, (uint64_t)clock_ns(), 8);
        if (h->state == RUNNING && now - h->heard_ms > all->ping_limit_ms) {
            say(h, NOT_REACHED, "nothing was heard from it for %lld s", (long long)(now - h->heard_ms) / 1000);
            host_cut(h);
        } else if (h->until && now >= h->until) {
            if (h->state == RUNNING && h->out_of_time)
                host_cut(h);
            else
                host_late(h, now);
        }
    }
}

static void take_signal(void *ctx, int sig)
{
    struct everywhere *all = ctx;
    int i, passes = sig == SIGUSR1 || sig == SIGUSR2, now = sig == SIGKILL || all->stop_signal;

    if (!passes && !all->stop_signal)
        all->stop_signal = sig;
    for (i = 0; i < all->n; i++) {
        struct host_run *h = &all->host[i];

        if (h->state == RUNNING && passes)
            send_number(h, MSG_SIGNAL, (uint64_t)sig, 4);
        else if (h->state == RUNNING)
            send_number(h, MSG_KILL, now ? 0 : (uint64_t)all->grace_ms, 8);
        else if (h->state == CONNECTING && !passes)
            host_cut(h);
    }
}

static void signals_readable(uv_poll_t *p, int status, int events)
{
    struct everywhere *all = p->data;

    if (status < 0 || keeper_signals(all->signal_fd, take_signal, all))
        uv_poll_stop(p);
}

/* ---- output */

static void emit(void *ctx, int stream, const char *text, size_t n)
{
    struct everywhere *all = ctx;

    writer_put(all->term, all->out[stream], text, n, -1, 0);
}

static void term_done(void *ctx, int host, size_t bytes)
{
    struct everywhere *all = ctx;

    give_credit(&all->host[host], bytes);
}

/* A reader that left ends it; a full disk does not. */
static void term_broken(void *ctx, int fd, int error)
{
    if (fd == STDOUT_FILENO && error == EPIPE)
        take_signal(ctx, SIGPIPE);
}

static void info(void *ctx, struct buf *b)
{
    const struct everywhere *all = ctx;
    struct buf text = BUF_INIT;
    int i;

    buf_addf(b, "{\"pid\":%d,\"began\":%.3f,\"nodes\":%d,\"world\":%d,\"id\":\"%s\",\"name\":\"exec\","
                "\"state\":\"exec\",\"hosts\":\"", (int)getppid(), all->began, all->n, all->n, all->id);
    nodelist_print(all->names, all->n, &text);
    buf_add_json(b, buf_str(&text), text.len);
    buf_adds(b, "\",\"command\":\"");
    buf_reset(&text);
    for (i = 1; i < all->o->argc; i++)
        buf_addf(&text, "%s%s", i > 1 ? " " : "", all->o->argv[i]);
    buf_add_json(b, buf_str(&text), text.len);
    buf_adds(b, "\"}");
    buf_clear(&text);
}

/* ---- the whole */

static void open_hosts(struct everywhere *all)
{
    static const struct channel_events events = {channel_up, channel_data, channel_stderr, channel_down};
    struct err err = ERR_INIT;
    int i, rc = all->ops->create ? all->ops->create(&all->pool, &all->loop, all->o, &err) : 0;

    for (i = 0; i < all->n; i++) {
        struct host_run *h = &all->host[i];

        *h = (struct host_run){.all = all, .index = i, .until = clock_ms() + all->connect_ms};
        if (!rc)
            err = (struct err)ERR_INIT;
        if (rc || all->ops->open(&h->ch, all->pool, &all->loop, all->o, &all->hosts->host[i], i, &events, h, &err)) {
            say(h, NOT_REACHED, "%s", err.text);
            host_down(h);
        }
    }
}

static int everywhere_init(struct everywhere *all, struct err *err)
{
    static const struct writer_events events = {term_done, term_broken};
    static const struct control_events control = {info, take_signal};
    const struct options *o = all->o;
    struct err unreachable = ERR_INIT;
    uint8_t id[6] = {0};
    size_t k;
    int i;

    if (getrandom(id, sizeof id, 0) != sizeof id)
        log_debug("no random bytes from the kernel");
    for (k = 0; k < sizeof id; k++)
        snprintf(all->id + 2 * k, 3, "%02x", id[k]);
    all->began = clock_wall();
    all->connect_ms = o->connect_timeout_ms >= 0 ? o->connect_timeout_ms : CONNECT_MS;
    all->ping_limit_ms = o->ping_limit_ms >= 0 ? o->ping_limit_ms : PING_LIMIT_MS;
    all->grace_ms = o->grace_ms >= 0 ? o->grace_ms : GRACE_MS;
    all->n = all->hosts->n;
    uv_loop_init(&all->loop);
    all->term = writer_create(&all->loop, all->n, &events, all, err);
    if (!all->term) {
        uv_loop_close(&all->loop);
        return -1;
    }
    all->host = xcalloc((size_t)all->n, sizeof *all->host);
    all->names = xcalloc((size_t)all->n, sizeof *all->names);
    for (i = 0; i < all->n; i++)
        all->names[i] = all->hosts->host[i].name;
    all->gather = gather_create(all->names, all->n, o->live, emit, all);
    all->out[1] = writer_fd(all->term, STDOUT_FILENO);
    all->out[2] = writer_fd(all->term, STDERR_FILENO);
    uv_timer_init(&all->loop, &all->tick);
    uv_poll_init(&all->loop, &all->signals, all->signal_fd);
    all->tick.data = all->signals.data = all;
    uv_timer_start(&all->tick, ticked, TICK_MS, TICK_MS);
    uv_poll_start(&all->signals, UV_READABLE, signals_readable);
    all->control = control_open(&all->loop, all->id, &control, all, &unreachable);
    if (!all->control)
        log_warn("ds-launch ps and kill cannot reach this: %s", unreachable.text);
    return 0;
}

static void everywhere_clear(struct everywhere *all)
{
    int i, turns = 100;

    for (i = 0; i < all->n; i++) {
        if (all->host[i].ch)
            all->ops->close(all->host[i].ch);
        msg_decoder_clear(&all->host[i].in);
    }
    control_close(all->control);
    uv_close((uv_handle_t *)&all->tick, NULL);
    uv_close((uv_handle_t *)&all->signals, NULL);
    if (all->ops->destroy)
        all->ops->destroy(all->pool);
    writer_destroy(all->term);
    while (uv_run(&all->loop, UV_RUN_NOWAIT) && turns--)
        usleep(10000); /* handles of the spawner that close late */
    uv_loop_close(&all->loop);
    gather_destroy(all->gather);
    free(all->host);
    free(all->names);
}

static int finish(struct everywhere *all)
{
    struct buf said = BUF_INIT;
    char *line, *rest;
    int i, status = 0;

    gather_print(all->gather, &said);
    writer_flush(all->term, -1);
    rest = said.data;
    while (rest && (line = strsep(&rest, "\n")))
        if (*line)
            log_error("%s", line);
    buf_clear(&said);
    for (i = 0; i < all->n; i++)
        if (all->host[i].status > status)
            status = all->host[i].status;
    if (writer_error(all->term)) {
        log_error("not all of the output could be written: %s", strerror(writer_error(all->term)));
        status = status ? status : 1;
    }
    if (all->stop_signal)
        log_info("ended by %s", all->stop_signal == SIGPIPE ? "its reader" : strsignal(all->stop_signal));
    return all->stop_signal ? 128 + all->stop_signal : status;
}

int everywhere_run(const struct options *o, const struct command *command, const struct hosts *hosts,
                   const struct spawner_ops *ops, int signals)
{
    struct everywhere all = {.o = o, .command = command, .hosts = hosts, .ops = ops, .signal_fd = signals};
    struct err err = ERR_INIT;
    int status;

    if (everywhere_init(&all, &err)) {
        log_error("%s", err.text);
        return err_exit_code(&err);
    }
    open_hosts(&all);
    if (all.down < all.n)
        uv_run(&all.loop, UV_RUN_DEFAULT);
    status = finish(&all);
    everywhere_clear(&all);
    return status;
}
