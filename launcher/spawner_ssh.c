/* Spawner ssh: the agent's stdin and stdout over an SSH session, the agent copied there when the node
 * lacks it.
 *
 * A channel goes LINK (session) -> RUN (the agent is started) -> UP (it spoke). A node without the agent
 * answers REMOTE_MISSING: then WAIT (while the first such node gets its copy: homes may be shared, and
 * then one copy serves all) and COPY, and RUN again. Whatever ends the channel leads to DOWN, told once.
 *
 * Invariants: callbacks come from the loop only (down after shut by a timer); the memory goes when the
 * channel's timer is closed. */
#include "launcher/magic.h"
#include "launcher/programs.h"
#include "launcher/said.h"
#include "launcher/spawner.h"
#include "launcher/digest.h"
#include "launcher/ssh_link.h"
#include "launcher/ssh_remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>

#define AGENT_BYTES (256u << 20)
#define COPY_BYTES 65536
#define SHUT_MS 5000 /* from EOF to the agent's end */
#define WORDS_BYTES 512 /* of its last words, in an error */

enum first_copy { FIRST_NONE, FIRST_UNDER_WAY, FIRST_DONE };

struct spawn_pool {
    struct ssh_pool *links;
    struct buf agent; /* the program's bytes */
    char sha[2 * SHA256_BYTES + 1];
    struct utsname uname;
    enum first_copy first;
    struct channel *waiting;
};

enum stage { STAGE_LINK, STAGE_RUN, STAGE_WAIT, STAGE_COPY, STAGE_UP, STAGE_DOWN };

struct channel {
    struct spawn_pool *pool;
    struct channel *next_waiting;
    char *host;
    int node;
    struct ssh_link *link;
    struct ssh_stream *stream;
    enum stage stage;
    int first, copied, shut, closed;
    size_t sent;           /* of the agent's bytes */
    uv_timer_t timer;      /* limit of the stage */
    struct magic magic;
    struct buf early;      /* queued before there was a stream */
    struct said said;
    struct channel_events ev;
    void *ctx;
};

static void start_run(struct channel *ch);
static void start_copy(struct channel *ch);

static int ssh_probe(const struct options *o, char why[256])
{
    snprintf(why, 256, "libssh %s, keys and hosts as in ~/.ssh/config", ssh_wire_version());
    return 0;
}

static void pool_destroy(void *pool)
{
    struct spawn_pool *p = pool;

    if (!p)
        return;
    ssh_pool_destroy(p->links);
    buf_clear(&p->agent);
    free(p);
}

static int pool_create(void **out, uv_loop_t *loop, const struct options *o, struct err *err)
{
    struct spawn_pool *p = xcalloc(1, sizeof *p);
    char *path = program_find("ds-agent", "DS_AGENT", err);
    int rc = path ? ssh_read_file(path, AGENT_BYTES, &p->agent, err) : -1;

    if (!rc && !p->agent.len)
        rc = err_set(err, ERR_INPUT_FILE, "%s is empty: build or install it again", path);
    if (!rc)
        rc = ssh_pool_create(&p->links, loop, o, err);
    free(path);
    if (rc) {
        pool_destroy(p);
        return -1;
    }
    sha256_hex(p->agent.data, p->agent.len, p->sha);
    uname(&p->uname);
    *out = p;
    return 0;
}

/* The next to copy after the first one is through, or failed: all ask their node once more. */
static void wake_waiting(struct spawn_pool *p, enum first_copy first)
{
    struct channel *list = p->waiting;

    p->waiting = NULL;
    p->first = first;
    while (list) {
        struct channel *ch = list;
        list = ch->next_waiting;
        start_run(ch);
    }
}

static void stop_waiting(struct channel *ch)
{
    struct channel **at = &ch->pool->waiting;

    while (*at && *at != ch)
        at = &(*at)->next_waiting;
    if (*at)
        *at = ch->next_waiting;
}

/* The channel's owner says which host it speaks of. */
static const char *without_name(const struct channel *ch, const char *text)
{
    return err_unprefix(text, ch->host);
}

static void drop_stream(struct channel *ch)
{
    ssh_stream_close(ch->stream);
    ch->stream = NULL;
}

static void down(struct channel *ch, const struct err *why)
{
    struct err e = *why;
    int first = ch->first;

    if (ch->stage == STAGE_DOWN)
        return;
    if (ch->stage == STAGE_WAIT)
        stop_waiting(ch);
    ch->stage = STAGE_DOWN;
    ch->first = 0;
    uv_timer_stop(&ch->timer);
    drop_stream(ch);
    ssh_link_close(ch->link);
    ch->link = NULL;
    if (first)
        wake_waiting(ch->pool, FIRST_NONE);
    if (ch->shut)
        e = (struct err)ERR_INIT;
    if (e.code)
        err_set(&e, why->code, "%s", without_name(ch, why->text));
    if (!ch->closed)
        ch->ev.down(ch->ctx, &e);
}

static void err_line(void *ctx, const char *line)
{
    struct channel *ch = ctx;

    if (ch->magic.found && !ch->closed)
        ch->ev.stderr_line(ch->ctx, line);
}

static const char *last_words(struct channel *ch)
{
    struct buf *tail = &ch->said.tail;
    const char *s;

    said_end(&ch->said, err_line, ch);
    if (!tail->len && !ch->magic.found)
        buf_add(tail, buf_str(&ch->magic.noise), ch->magic.noise.len);
    while (tail->len && strchr("\r\n ", tail->data[tail->len - 1]))
        tail->data[--tail->len] = 0;
    s = buf_str(tail);
    return tail->len > WORDS_BYTES ? s + tail->len - WORDS_BYTES : s;
}

/* down, for a stream that ended: what it was, how it ended, what it said. */
static void down_ended(struct channel *ch, const char *what, const struct ssh_stream_end *end)
{
    struct err e = ERR_INIT;
    char how[320];
    const char *said;

    if (*end->why)
        snprintf(how, sizeof how, "was cut off: %s", without_name(ch, end->why));
    else if (*end->signal)
        snprintf(how, sizeof how, "was killed by signal %s", end->signal);
    else if (end->status >= 0)
        snprintf(how, sizeof how, "ended with status %d", end->status);
    else
        snprintf(how, sizeof how, "ended without a status");
    said = last_words(ch);
    if (ch->stage != STAGE_UP || *end->why || *end->signal || end->status)
        err_set(&e, ERR_NODE, "%s: %s %s%s%s%s", ch->host, what, how,
                ch->stage == STAGE_RUN ? " before it answered" : "", *said ? "; it said: " : "", said);
    down(ch, &e);
}

static void on_limit(uv_timer_t *t)
{
    struct channel *ch = t->data;
    struct err e = ERR_INIT;

    if (!ch->shut)
        err_set(&e, ERR_NODE, "%s: %s within %d s after login%s%s", ch->host,
                ch->stage == STAGE_COPY ? "the copying of the agent made no progress"
                                        : "the agent did not answer",
                (int)(ssh_pool_timeout_ms(ch->pool->links) / 1000), ch->said.tail.len ? "; it said: " : "",
                buf_str(&ch->said.tail));
    down(ch, &e);
}

static void begin(struct channel *ch, enum stage stage)
{
    ch->stage = stage;
    if (!ch->shut)
        uv_timer_start(&ch->timer, on_limit, (uint64_t)ssh_pool_timeout_ms(ch->pool->links), 0);
}

/* RUN and UP */

static void run_data(void *ctx, int is_stderr, const char *data, size_t n)
{
    struct channel *ch = ctx;
    size_t at;

    if (is_stderr) {
        said_feed(&ch->said, data, n, err_line, ch);
        return;
    }
    if (!ch->magic.found) {
        at = magic_feed(&ch->magic, data, n);
        if (!ch->magic.found) {
            if (magic_hopeless(&ch->magic)) {
                struct err e = ERR_INIT;
                err_set(&e, ERR_NODE, "%s: its shell start-up files print without end: %s", ch->host,
                        last_words(ch));
                down(ch, &e);
            }
            return;
        }
        ch->stage = STAGE_UP;
        buf_clear(&ch->early);
        if (!ch->shut)
            uv_timer_stop(&ch->timer);
        ch->ev.up(ch->ctx);
        data += at, n -= at;
    }
    if (n && !ch->closed && ch->stage == STAGE_UP)
        ch->ev.data(ch->ctx, data, n);
}

static void run_end(void *ctx, const struct ssh_stream_end *end)
{
    struct channel *ch = ctx;

    if (ch->stage == STAGE_RUN && !*end->why && end->status == REMOTE_MISSING && !ch->shut) {
        drop_stream(ch);
        if (ch->copied) {
            struct err e = ERR_INIT;
            err_set(&e, ERR_NODE, "%s: the agent was copied there and is gone: is its home on every login node "
                    "of that name the same?", ch->host);
            down(ch, &e);
        } else if (ch->pool->first == FIRST_UNDER_WAY) {
            uv_timer_stop(&ch->timer);
            ch->stage = STAGE_WAIT;
            ch->next_waiting = ch->pool->waiting;
            ch->pool->waiting = ch;
        } else {
            ch->first = ch->pool->first == FIRST_NONE;
            if (ch->first)
                ch->pool->first = FIRST_UNDER_WAY;
            start_copy(ch);
        }
        return;
    }
    down_ended(ch, "ds-agent", end);
}

static void start_run(struct channel *ch)
{
    static const struct ssh_stream_events events = {NULL, run_data, NULL, run_end};
    struct buf command = BUF_INIT;

    magic_clear(&ch->magic);
    said_clear(&ch->said);
    begin(ch, STAGE_RUN);
    remote_run_command(ch->pool->sha, ch->pool->uname.machine, &command);
    ch->stream = ssh_wire_exec(ssh_link_wire(ch->link), command.data, &events, ch);
    buf_clear(&command);
    /* kept until the agent is known to be there: the script that says it is not reads nothing */
    if (ch->early.len)
        ssh_stream_send(ch->stream, ch->early.data, ch->early.len);
}

/* COPY */

static void copy_more(void *ctx)
{
    struct channel *ch = ctx;
    size_t n = ch->pool->agent.len - ch->sent;

    n = n < COPY_BYTES ? n : COPY_BYTES;
    begin(ch, STAGE_COPY);
    ssh_stream_send(ch->stream, ch->pool->agent.data + ch->sent, n);
    ch->sent += n;
    if (ch->sent == ch->pool->agent.len)
        ssh_stream_eof(ch->stream);
}

static void copy_drained(void *ctx)
{
    struct channel *ch = ctx;

    if (ch->sent < ch->pool->agent.len)
        copy_more(ch);
}

static void copy_data(void *ctx, int is_stderr, const char *data, size_t n)
{
    struct channel *ch = ctx;

    if (is_stderr)
        said_feed(&ch->said, data, n, err_line, ch);
}

static void copy_end(void *ctx, const struct ssh_stream_end *end)
{
    struct channel *ch = ctx;

    if (*end->why || *end->signal || end->status) {
        down_ended(ch, "copying the agent to ~/.cache/ds-launch", end);
        return;
    }
    drop_stream(ch);
    ch->copied = 1;
    start_run(ch);
    if (ch->first) {
        ch->first = 0;
        wake_waiting(ch->pool, FIRST_DONE);
    }
}

static void start_copy(struct channel *ch)
{
    static const struct ssh_stream_events events = {copy_more, copy_data, copy_drained, copy_end};
    struct buf command = BUF_INIT;
    uint64_t dice = 0;
    char token[40];

    if (getrandom(&dice, sizeof dice, 0) != sizeof dice)
        dice = (uint64_t)(uintptr_t)ch;
    snprintf(token, sizeof token, "%d.%016llx", ch->node, (unsigned long long)dice);
    remote_copy_command(ch->pool->sha, token, &command);
    ch->sent = 0;
    begin(ch, STAGE_COPY);
    ch->stream = ssh_wire_exec(ssh_link_wire(ch->link), command.data, &events, ch);
    buf_clear(&command);
}

/* LINK */

static void link_is_up(void *ctx)
{
    start_run(ctx);
}

static void link_note(void *ctx, const char *line)
{
    struct channel *ch = ctx;

    ch->ev.stderr_line(ch->ctx, without_name(ch, line));
}

static void link_is_down(void *ctx, const struct err *why)
{
    down(ctx, why);
}

static int ssh_open(struct channel **out, void *pool, uv_loop_t *loop, const struct options *o,
                    const struct host *host, int node, const struct channel_events *ev, void *ctx,
                    struct err *err)
{
    static const struct ssh_link_events events = {link_is_up, link_note, link_is_down};
    struct channel *ch = xcalloc(1, sizeof *ch);

    *out = NULL;
    ch->pool = pool;
    if (ssh_link_open(&ch->link, ch->pool->links, host->name, host->user, host->port, &events, ch, err)) {
        free(ch);
        return -1;
    }
    ch->host = xstrdup(host->name);
    ch->node = node, ch->ev = *ev, ch->ctx = ctx;
    uv_timer_init(loop, &ch->timer);
    ch->timer.data = ch;
    *out = ch;
    return 0;
}

static int ssh_send(struct channel *ch, const void *data, size_t n)
{
    if (ch->stage == STAGE_DOWN || ch->shut)
        return -1;
    if (ch->stage == STAGE_UP) {
        ssh_stream_send(ch->stream, data, n);
        return 0;
    }
    buf_add(&ch->early, data, n);
    if (ch->stage == STAGE_RUN)
        ssh_stream_send(ch->stream, data, n);
    return 0;
}

static void ssh_shut(struct channel *ch)
{
    if (ch->stage == STAGE_DOWN || ch->shut)
        return;
    ch->shut = 1;
    if (ch->stage == STAGE_UP)
        ssh_stream_eof(ch->stream);
    uv_timer_start(&ch->timer, on_limit, ch->stage == STAGE_UP ? SHUT_MS : 0, 0);
}

static void on_freed(uv_handle_t *h)
{
    struct channel *ch = h->data;

    magic_clear(&ch->magic);
    buf_clear(&ch->early);
    said_clear(&ch->said);
    free(ch->host);
    free(ch);
}

static void ssh_close(struct channel *ch)
{
    struct err none = ERR_INIT;

    if (!ch || ch->closed)
        return;
    ch->closed = 1;
    down(ch, &none);
    uv_close((uv_handle_t *)&ch->timer, on_freed);
}

const struct spawner_ops spawner_ssh = {
    .name = "ssh",
    .probe = ssh_probe,
    .create = pool_create,
    .destroy = pool_destroy,
    .open = ssh_open,
    .send = ssh_send,
    .shut = ssh_shut,
    .close = ssh_close,
};
