/* Spawners exec and openssh: a command reaches the host (a template of the user's, or the system's ssh in batch
 * mode) and runs there what starts the agent; its stdin and stdout are the agent's.
 *
 * A channel goes QUEUE (waits for a place) -> RUN (the command is started) -> UP (the agent spoke). A node without
 * the agent says so: then WAIT (while the first such node gets its copy: homes may be shared) and COPY (the same
 * command with the other script, the agent its stdin), and RUN again. What ssh may do better a moment later leads to
 * PAUSE and QUEUE.
 *
 * Invariants: one child at a time; placed == 1 exactly in RUN and COPY; down is told once, from the loop; the memory
 * goes when the timer is closed. */
#include "launcher/command.h"
#include "launcher/digest.h"
#include "launcher/pipechan.h"
#include "launcher/programs.h"
#include "launcher/ssh_remote.h"
#include "launcher/ssh_target.h"

#include "engine/base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <unistd.h>

#define AGENT_BYTES (256u << 20)
#define STARTS 64 /* commands that have not led to an agent yet, at once */
#define TIMEOUT_MS 30000
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 3000

enum stage { STAGE_QUEUE, STAGE_RUN, STAGE_WAIT, STAGE_COPY, STAGE_PAUSE, STAGE_UP, STAGE_DOWN };
enum first_copy { FIRST_NONE, FIRST_UNDER_WAY, FIRST_DONE };

struct exec_pool {
    const struct options *o;
    const char *template; /* NULL: the system's ssh */
    char *agent;          /* its program; NULL: the template names it */
    char sha[2 * SHA256_BYTES + 1];
    struct utsname uname;
    int64_t timeout_ms;
    int placed, serving;
    enum first_copy first;
    struct channel *queue, **queue_end, *waiting;
};

struct channel {
    struct exec_pool *pool;
    struct channel *next; /* in the queue, or among those that wait for the first copy */
    uv_loop_t *loop;
    const struct host *host;
    int node;
    enum stage stage;
    int placed, first, copied, shut, closed, tries;
    int64_t until_ms;
    struct pipechan *pipe;
    uv_timer_t timer;
    struct buf early; /* queued before the agent spoke */
    struct channel_events ev;
    void *ctx;
};

static void start(struct channel *ch);

/* ---- the pool */

static void pool_destroy(void *pool)
{
    struct exec_pool *p = pool;

    if (!p)
        return;
    free(p->agent);
    free(p);
}

static int read_agent(struct exec_pool *p, struct err *err)
{
    struct buf bytes = BUF_INIT;
    int rc;

    p->agent = program_find("ds-agent", "DS_AGENT", err);
    rc = p->agent ? ssh_read_file(p->agent, AGENT_BYTES, &bytes, err) : -1;
    if (!rc)
        sha256_hex(bytes.data, bytes.len, p->sha);
    buf_clear(&bytes);
    return rc;
}

static int create(void **out, const char *template, const struct options *o, struct err *err)
{
    struct exec_pool *p = xcalloc(1, sizeof *p);

    p->o = o;
    p->template = template;
    p->timeout_ms = o->connect_timeout_ms > 0 ? o->connect_timeout_ms : TIMEOUT_MS;
    p->queue_end = &p->queue;
    uname(&p->uname);
    if (!(template && command_names_agent(template)) && read_agent(p, err)) {
        pool_destroy(p);
        return -1;
    }
    *out = p;
    return 0;
}

static int exec_create(void **out, uv_loop_t *loop, const struct options *o, struct err *err)
{
    if (!o->launcher_args) /* launch.launcher = exec in a job file */
        return err_set(err, ERR_INPUT, "launcher exec needs --launcher exec --launcher-args with the command that "
                       "reaches %%h");
    return create(out, o->launcher_args, o, err);
}

static int openssh_create(void **out, uv_loop_t *loop, const struct options *o, struct err *err)
{
    return create(out, NULL, o, err);
}

/* Gives places to the channels that wait longest. One that fails at once leaves its place and comes here again: the
 * outer call goes on, so that the stack does not grow with the queue. */
static void serve_queue(struct exec_pool *p)
{
    if (p->serving)
        return;
    p->serving = 1;
    while (p->queue && p->placed < STARTS) {
        struct channel *ch = p->queue;

        p->queue = ch->next;
        if (!p->queue)
            p->queue_end = &p->queue;
        ch->next = NULL;
        start(ch);
    }
    p->serving = 0;
}

static void enqueue(struct channel *ch)
{
    ch->stage = STAGE_QUEUE;
    ch->next = NULL;
    *ch->pool->queue_end = ch;
    ch->pool->queue_end = &ch->next;
}

/* Returns where it stood. */
static struct channel **leave_list(struct channel **list, struct channel *ch)
{
    while (*list && *list != ch)
        list = &(*list)->next;
    if (*list)
        *list = ch->next;
    return list;
}

static void leave_queue(struct channel *ch)
{
    struct channel **at = leave_list(&ch->pool->queue, ch);

    if (!*at)
        ch->pool->queue_end = at;
}

static void leave_place(struct channel *ch)
{
    ch->pool->placed -= ch->placed;
    ch->placed = 0;
}

/* After the first copy is through, or failed: all ask their node once more. */
static void wake_waiting(struct exec_pool *p, enum first_copy first)
{
    struct channel *list = p->waiting;

    p->waiting = NULL;
    p->first = first;
    while (list) {
        struct channel *ch = list;

        list = ch->next;
        enqueue(ch);
    }
}

/* ---- one channel */

static void drop_pipe(struct channel *ch)
{
    pipechan_close(ch->pipe);
    ch->pipe = NULL;
}

static void down(struct channel *ch, const struct err *why)
{
    struct err e = *why, none = ERR_INIT;
    int first = ch->first;

    if (ch->stage == STAGE_DOWN)
        return;
    if (ch->stage == STAGE_WAIT)
        leave_list(&ch->pool->waiting, ch);
    if (ch->stage == STAGE_QUEUE)
        leave_queue(ch);
    ch->stage = STAGE_DOWN;
    ch->first = 0;
    uv_timer_stop(&ch->timer);
    drop_pipe(ch);
    leave_place(ch);
    if (first)
        wake_waiting(ch->pool, FIRST_NONE);
    if (!ch->closed) {
        serve_queue(ch->pool);
        ch->ev.down(ch->ctx, ch->shut ? &none : &e);
    }
}

static void on_shut(uv_timer_t *t)
{
    struct err none = ERR_INIT;

    down(t->data, &none);
}

static void on_pause(uv_timer_t *t)
{
    struct channel *ch = t->data;

    enqueue(ch);
    serve_queue(ch->pool);
}

/* Half to one and a half of a pause that doubles, so that no herd comes back; 0: there is no time left. */
static int pause_start(struct channel *ch)
{
    int64_t pause = PAUSE_MIN_MS << (ch->tries < 5 ? ch->tries : 5);
    uint32_t dice = 0;

    if (getrandom(&dice, sizeof dice, GRND_NONBLOCK) != sizeof dice)
        dice = (uint32_t)clock_ns();
    pause = pause > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause;
    pause = pause / 2 + (int64_t)(dice % (uint32_t)pause);
    if (clock_ms() + pause >= ch->until_ms)
        return 0;
    ch->tries++;
    ch->stage = STAGE_PAUSE;
    uv_timer_start(&ch->timer, on_pause, (uint64_t)pause, 0);
    return 1;
}

static void copy_down(struct channel *ch, const struct err *why)
{
    struct err e = *why;
    int first = ch->first;

    if (pipechan_status(ch->pipe) == 0 && !ch->shut) {
        drop_pipe(ch);
        leave_place(ch);
        ch->copied = 1;
        ch->first = 0;
        enqueue(ch);
        if (first)
            wake_waiting(ch->pool, FIRST_DONE);
        serve_queue(ch->pool);
        return;
    }
    if (e.code)
        err_prefix(&e, "copying the agent there");
    down(ch, &e);
}

/* The node has no agent: who is the first copies, the others wait to see whether they need to. */
static void missing(struct channel *ch)
{
    struct exec_pool *p = ch->pool;
    struct err e = ERR_INIT;

    drop_pipe(ch);
    leave_place(ch);
    if (ch->copied) {
        err_set(&e, ERR_NODE, "the agent was copied there and is gone: does the command reach the same place each "
                "time?");
        down(ch, &e);
        return;
    }
    if (p->first == FIRST_UNDER_WAY) {
        ch->stage = STAGE_WAIT;
        ch->next = p->waiting;
        p->waiting = ch;
    } else {
        ch->first = p->first == FIRST_NONE;
        if (ch->first)
            p->first = FIRST_UNDER_WAY;
        ch->stage = STAGE_COPY;
        start(ch);
    }
    serve_queue(p);
}

static void run_down(struct channel *ch, const struct err *why)
{
    int status = pipechan_status(ch->pipe);
    const char *said = pipechan_said(ch->pipe);

    if (ch->stage == STAGE_RUN && !ch->shut && ch->pool->agent &&
        (status == REMOTE_MISSING || strstr(said, REMOTE_MISSING_LINE))) {
        missing(ch);
        return;
    }
    if (ch->stage == STAGE_RUN && !ch->shut && !ch->pool->template && command_openssh_may_pass(status, said) &&
        pause_start(ch)) {
        drop_pipe(ch);
        leave_place(ch);
        serve_queue(ch->pool);
        return;
    }
    down(ch, why);
}

static void pipe_down(void *ctx, const struct err *why)
{
    struct channel *ch = ctx;

    if (ch->stage == STAGE_COPY)
        copy_down(ch, why);
    else
        run_down(ch, why);
}

static void pipe_up(void *ctx)
{
    struct channel *ch = ctx;

    if (ch->stage == STAGE_COPY)
        return;
    ch->stage = STAGE_UP;
    leave_place(ch);
    ch->ev.up(ch->ctx);
    if (!ch->closed && ch->early.len)
        pipechan_send(ch->pipe, ch->early.data, ch->early.len);
    buf_clear(&ch->early);
    serve_queue(ch->pool);
}

static void pipe_data(void *ctx, const void *data, size_t n)
{
    struct channel *ch = ctx;

    if (!ch->closed && ch->stage == STAGE_UP)
        ch->ev.data(ch->ctx, data, n);
}

static void pipe_stderr(void *ctx, const char *line)
{
    struct channel *ch = ctx;

    if (!ch->closed)
        ch->ev.stderr_line(ch->ctx, line);
}

static int start_child(struct channel *ch, const char *script, int in, struct err *err)
{
    static const struct channel_events events = {pipe_up, pipe_data, pipe_stderr, pipe_down};
    struct exec_pool *p = ch->pool;
    struct buf line = BUF_INIT;
    char *sh[] = {"sh", "-c", NULL, NULL}, **argv = NULL;
    char *what = xasprintf(p->template ? "the command for %s" : "ssh to %s", ch->host->name);
    int rc = 0;

    if (!p->template) {
        argv = command_openssh(p->o, ch->host, p->timeout_ms, script);
    } else {
        rc = command_fill(p->template, ch->host, ch->node, script, &line, err);
        sh[2] = line.data;
    }
    if (!rc)
        rc = pipechan_open(&ch->pipe, ch->loop, argv ? argv : sh, in, what, &events, ch, err);
    command_free(argv);
    buf_clear(&line);
    free(what);
    return rc;
}

/* Takes a place and starts the command that the stage is about. */
static void start(struct channel *ch)
{
    struct exec_pool *p = ch->pool;
    struct buf script = BUF_INIT;
    struct err e = ERR_INIT;
    uint64_t dice = 0;
    char token[40];
    int in = -1;

    ch->placed = 1;
    p->placed++;
    buf_adds(&script, "");
    if (ch->stage == STAGE_COPY) {
        if (getrandom(&dice, sizeof dice, 0) != sizeof dice)
            dice = (uint64_t)(uintptr_t)ch;
        snprintf(token, sizeof token, "%d.%016llx", ch->node, (unsigned long long)dice);
        remote_copy_script(p->sha, token, &script);
        in = open(p->agent, O_RDONLY | O_CLOEXEC);
        if (in < 0)
            err_set(&e, ERR_INPUT_FILE, "cannot read %s: %m", p->agent);
    } else {
        ch->stage = STAGE_RUN;
        if (p->agent)
            remote_run_script(p->sha, p->uname.machine, &script);
    }
    if (e.code || start_child(ch, buf_str(&script), in, &e))
        down(ch, &e);
    if (in >= 0)
        close(in);
    buf_clear(&script);
}

static void on_begin(uv_timer_t *t)
{
    struct channel *ch = t->data;

    enqueue(ch);
    serve_queue(ch->pool);
}

/* ---- what the front end calls */

static int exec_open(struct channel **out, void *pool, uv_loop_t *loop, const struct options *o,
                     const struct host *host, int node, const struct channel_events *ev, void *ctx,
                     struct err *err)
{
    struct exec_pool *p = pool;
    struct channel *ch = xcalloc(1, sizeof *ch);
    struct buf line = BUF_INIT;
    int rc = p->template ? command_fill(p->template, host, node, "", &line, err) : 0;

    buf_clear(&line);
    *out = NULL;
    if (rc) { /* a template that says nothing sensible is told before anything starts */
        free(ch);
        return -1;
    }
    ch->pool = p, ch->loop = loop, ch->host = host, ch->node = node;
    ch->ev = *ev, ch->ctx = ctx;
    ch->until_ms = clock_ms() + p->timeout_ms;
    ch->stage = STAGE_PAUSE;
    uv_timer_init(loop, &ch->timer);
    ch->timer.data = ch;
    uv_timer_start(&ch->timer, on_begin, 0, 0); /* nothing is told from inside this call */
    *out = ch;
    return 0;
}

static int exec_send(struct channel *ch, const void *data, size_t n)
{
    if (ch->stage == STAGE_DOWN || ch->shut)
        return -1;
    if (ch->stage == STAGE_UP)
        return pipechan_send(ch->pipe, data, n);
    buf_add(&ch->early, data, n);
    return 0;
}

static void exec_shut(struct channel *ch)
{
    if (ch->stage == STAGE_DOWN || ch->shut)
        return;
    ch->shut = 1;
    if (ch->pipe)
        pipechan_shut(ch->pipe);
    else
        uv_timer_start(&ch->timer, on_shut, 0, 0);
}

static void on_freed(uv_handle_t *h)
{
    struct channel *ch = h->data;

    buf_clear(&ch->early);
    free(ch);
}

static void exec_close(struct channel *ch)
{
    struct err none = ERR_INIT;

    if (!ch || ch->closed)
        return;
    ch->closed = 1;
    down(ch, &none);
    uv_close((uv_handle_t *)&ch->timer, on_freed);
}

static int exec_probe(const struct options *o, char why[256])
{
    if (o && o->launcher_args)
        snprintf(why, 256, "%s", o->launcher_args);
    else
        snprintf(why, 256, "any command that reaches a host: --launcher-args 'kubectl exec -i %%h -- '");
    return 0;
}

static int openssh_probe(const struct options *o, char why[256])
{
    const char *path = getenv("PATH");

    while (path && *path) {
        size_t n = strcspn(path, ":");
        char *ssh = xasprintf("%.*s/ssh", (int)n, path);
        int there = n && !access(ssh, X_OK);

        snprintf(why, 256, "%s in batch mode", ssh);
        free(ssh);
        if (there)
            return 0;
        path += n + (path[n] == ':');
    }
    snprintf(why, 256, "ssh is not in PATH");
    return -1;
}

const struct spawner_ops spawner_exec = {
    .name = "exec",
    .probe = exec_probe,
    .create = exec_create,
    .destroy = pool_destroy,
    .open = exec_open,
    .send = exec_send,
    .shut = exec_shut,
    .close = exec_close,
};

const struct spawner_ops spawner_openssh = {
    .name = "openssh",
    .probe = openssh_probe,
    .create = openssh_create,
    .destroy = pool_destroy,
    .open = exec_open,
    .send = exec_send,
    .shut = exec_shut,
    .close = exec_close,
};
