/* The channel to the front end: see agent.h. Invariant: out.data[0..sent) is written already; once
 * down, what is queued is thrown away. */
#include "launcher/agent/agent.h"
#include "engine/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES 65536

struct chan {
    int in, out;
    struct watch *in_watch, *out_watch;
    struct chan_events ev;
    void *ctx;
    struct msg_decoder decoder;
    struct buf queue;
    size_t sent;
    int64_t heard_ms;
    int is_down;
};

static void chan_down(struct chan *c, const char *why)
{
    if (c->is_down)
        return;
    c->is_down = 1;
    watch_set(c->in_watch, 0);
    watch_set(c->out_watch, 0);
    buf_clear(&c->queue);
    c->sent = 0;
    c->ev.down(c->ctx, why);
}

static void chan_deliver(struct chan *c)
{
    struct err err = ERR_INIT;
    struct msg m;
    int rc;

    while (!c->is_down && (rc = msg_next(&c->decoder, &m, &err)) != 0) {
        if (rc < 0)
            chan_down(c, err.text);
        else
            c->ev.msg(c->ctx, &m);
    }
}

/* Until nothing is left or a bound is reached, so that a fast sender can't starve the ranks. */
static void chan_read(struct chan *c)
{
    static char chunk[READ_BYTES];

    for (int i = 0; i < 16 && !c->is_down; i++) {
        ssize_t n = read(c->in, chunk, sizeof chunk);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            chan_down(c, n ? strerror(errno) : "the channel to ds-launch ended");
            return;
        }
        c->heard_ms = clock_ms();
        msg_feed(&c->decoder, chunk, (size_t)n);
        chan_deliver(c);
    }
}

static void chan_write(struct chan *c)
{
    while (!c->is_down && c->sent < c->queue.len) {
        ssize_t n = write(c->out, c->queue.data + c->sent, c->queue.len - c->sent);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            chan_down(c, strerror(errno));
            return;
        }
        c->sent += (size_t)n;
    }
    if (c->sent == c->queue.len) {
        buf_reset(&c->queue);
        c->sent = 0;
    } else if (c->sent > c->queue.len / 2) {
        buf_drop(&c->queue, c->sent);
        c->sent = 0;
    }
    watch_set(c->out_watch, c->queue.len && !c->is_down ? LOOP_WRITE : 0);
    if (!c->queue.len && !c->is_down)
        c->ev.drained(c->ctx);
}

static void on_in(void *ctx, int events)
{
    chan_read(ctx);
}

static void on_out(void *ctx, int events)
{
    chan_write(ctx);
}

struct chan *chan_create(struct loop *l, int in, int out, const struct chan_events *ev, void *ctx,
                         struct err *err)
{
    struct chan *c = xcalloc(1, sizeof *c);

    c->in = in;
    c->out = out;
    c->ev = *ev;
    c->ctx = ctx;
    c->heard_ms = clock_ms();
    c->in_watch = watch_create(l, in, on_in, c, err);
    c->out_watch = c->in_watch ? watch_create(l, out, on_out, c, err) : NULL;
    if (!c->out_watch) {
        chan_destroy(c);
        return NULL;
    }
    watch_set(c->in_watch, LOOP_READ);
    return c;
}

void chan_destroy(struct chan *c)
{
    if (!c)
        return;
    watch_destroy(c->in_watch);
    watch_destroy(c->out_watch);
    msg_decoder_clear(&c->decoder);
    buf_clear(&c->queue);
    free(c);
}

/* The write itself waits for the loop's next turn: frames of one turn go out together. */
void chan_raw(struct chan *c, const void *data, size_t n)
{
    if (c->is_down)
        return;
    buf_add(&c->queue, data, n);
    watch_set(c->out_watch, LOOP_WRITE);
}

void chan_sendb(struct chan *c, enum msg_type type, uint32_t epoch, struct buf *body)
{
    if (!c->is_down) {
        msg_put(&c->queue, type, epoch, body->data, body->len);
        watch_set(c->out_watch, LOOP_WRITE);
    }
    buf_clear(body);
}

void chan_lose(struct chan *c)
{
    shutdown(c->out, SHUT_RDWR);
}

int64_t chan_poll(struct chan *c)
{
    chan_read(c);
    return c->heard_ms;
}
