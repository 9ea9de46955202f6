/* Between a stream and a socket pair: see ssh_tube.h.
 *
 * Invariants: at most HIGH_BYTES wait towards the bastion (then the socket is not read) and one event's
 * bytes towards the socket (then the stream is paused); the tube is freed by ssh_tube_close alone. */
#include "launcher/ssh_tube.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define HIGH_BYTES (256u << 10)
#define READ_BYTES 32768

struct ssh_tube {
    struct ssh_stream *stream;
    uv_poll_t poll;
    int fd, near; /* ours, and the one handed out; -1: gone */
    int told;
    struct buf in; /* for the socket */
    void (*done)(void *ctx, int fd, const struct err *why);
    void *ctx;
    uv_loop_t *loop;
};

static void watch(struct ssh_tube *t);

static void free_tube(uv_handle_t *h)
{
    struct ssh_tube *t = h->data;

    buf_clear(&t->in);
    free(t);
}

static void hang_up(struct ssh_tube *t)
{
    if (t->fd < 0)
        return;
    uv_poll_stop(&t->poll);
    close(t->fd);
    t->fd = -1;
}

static void flush_in(struct ssh_tube *t)
{
    while (t->in.len) {
        ssize_t n = send(t->fd, t->in.data, t->in.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            hang_up(t);
            return;
        }
        buf_drop(&t->in, (size_t)n);
    }
    if (t->stream)
        ssh_stream_pause(t->stream, 0);
    else
        hang_up(t); /* the bastion's side ended and all of it is delivered */
}

static void on_ready(uv_poll_t *p, int status, int events)
{
    struct ssh_tube *t = p->data;
    char part[READ_BYTES];
    ssize_t n;

    if (events & UV_WRITABLE)
        flush_in(t);
    if (t->fd >= 0 && (status < 0 || (events & UV_READABLE))) {
        n = recv(t->fd, part, sizeof part, 0);
        if (n > 0 && t->stream)
            ssh_stream_send(t->stream, part, (size_t)n);
        else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            if (t->stream)
                ssh_stream_eof(t->stream);
            hang_up(t);
        }
    }
    watch(t);
}

static void watch(struct ssh_tube *t)
{
    int events = 0;

    if (t->fd < 0)
        return;
    if (t->stream && ssh_stream_pending(t->stream) < HIGH_BYTES)
        events |= UV_READABLE;
    if (t->in.len)
        events |= UV_WRITABLE;
    if (events)
        uv_poll_start(&t->poll, events, on_ready);
    else
        uv_poll_stop(&t->poll);
}

static void on_open(void *ctx)
{
    struct ssh_tube *t = ctx;
    int fd = t->near;

    t->near = -1;
    t->told = 1;
    watch(t);
    t->done(t->ctx, fd, NULL);
}

static void on_data(void *ctx, int is_stderr, const char *data, size_t n)
{
    struct ssh_tube *t = ctx;

    if (t->fd < 0)
        return;
    buf_add(&t->in, data, n);
    ssh_stream_pause(t->stream, 1);
    flush_in(t);
    watch(t);
}

static void on_drained(void *ctx)
{
    watch(ctx);
}

static void on_end(void *ctx, const struct ssh_stream_end *end)
{
    struct ssh_tube *t = ctx;
    struct err e = ERR_INIT;

    ssh_stream_close(t->stream);
    t->stream = NULL;
    if (!t->told) {
        t->told = 1;
        err_set(&e, ERR_NODE, "%s", *end->why ? end->why : "the connection was closed");
        t->done(t->ctx, -1, &e);
    } else if (t->fd >= 0 && !t->in.len) {
        hang_up(t);
    } else {
        watch(t);
    }
}

struct ssh_tube *ssh_tube_open(uv_loop_t *loop, struct ssh_wire *bastion, const char *host, int port,
                               void (*done)(void *ctx, int fd, const struct err *why), void *ctx)
{
    static const struct ssh_stream_events events = {on_open, on_data, on_drained, on_end};
    struct ssh_tube *t = xcalloc(1, sizeof *t);
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)) {
        free(t);
        return NULL;
    }
    t->fd = pair[0], t->near = pair[1];
    t->loop = loop, t->done = done, t->ctx = ctx;
    uv_poll_init(loop, &t->poll, t->fd);
    t->poll.data = t;
    t->stream = ssh_wire_forward(bastion, host, port, &events, t);
    return t;
}

void ssh_tube_close(struct ssh_tube *t)
{
    if (!t)
        return;
    ssh_stream_close(t->stream);
    t->stream = NULL;
    hang_up(t);
    if (t->near >= 0)
        close(t->near);
    uv_close((uv_handle_t *)&t->poll, free_tube);
}
