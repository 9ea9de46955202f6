/* What flows between a rank's pipes and the channel. Invariants: whole lines leave, or a line of more than LINE_BYTES
 * in parts, or what a rank wrote before it paused; credit is overdrawn by the end of one line at most; without credit
 * no pipe is read (so a rank that writes waits, and our memory stays flat). stdin is bounded by what MSG_WANT allowed.
 */
#include "launcher/agent/agent.h"

#include "engine/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES MSG_OVERDRAW_BYTES /* of one stream at a time, so that streams take turns */
#define LINE_BYTES 16384   /* of a line that has no end yet */
#define READ_MIN 4096      /* is read while there is credit at all */
#define SLOW_MS 1000       /* of a line that grows bit by bit */
#define PAUSE_MS 200       /* without a word, and what stands there without an end is given out */

static void put_output(struct stream *s, const void *data, size_t n)
{
    tell_output(s->rank->team, s->rank->number, s->which, data, n);
}

static void give_tail(struct stream *s)
{
    if (s->tail.len)
        put_output(s, s->tail.data, s->tail.len);
    buf_clear(&s->tail);
}

void stream_close(struct stream *s)
{
    if (s->fd < 0)
        return;
    watch_destroy(s->watch);
    s->watch = NULL;
    close(s->fd);
    s->fd = -1;
    give_tail(s);
    put_output(s, NULL, 0);
}

/* Whole lines of data leave, the rest becomes the tail. */
static void give_lines(struct stream *s, const char *data, size_t n)
{
    struct agent *a = s->rank->team->agent;
    const char *nl = memrchr(data, '\n', n);
    size_t whole = nl ? (size_t)(nl + 1 - data) : n > LINE_BYTES ? n : 0;

    s->lines_left = 0;
    if (nl && a->credit < (int64_t)whole) { /* to the end of the line in which credit runs out */
        nl = memchr(data + a->credit - 1, '\n', whole - (size_t)a->credit + 1);
        s->lines_left = (size_t)(nl + 1 - data) < whole;
        whole = (size_t)(nl + 1 - data);
    }
    if (whole)
        put_output(s, data, whole);
    if (whole || !s->tail.len)
        s->tail_began_ms = clock_ms();
    buf_reset(&s->tail);
    if (whole == n) {
        buf_clear(&s->tail);
        return;
    }
    buf_add(&s->tail, data + whole, n - whole);
    s->tail_ms = clock_ms();
    if (!a->tails) {
        a->tails = 1;
        ticker_set(a->tail_ticker, PAUSE_MS, PAUSE_MS / 4);
    }
}

/* One piece; 0 when there is nothing to move now. */
static int stream_piece(struct stream *s)
{
    static char piece[PIECE_BYTES];
    int64_t credit = s->rank->team->agent->credit;
    size_t have = s->tail.len, room = PIECE_BYTES - have;
    ssize_t n;

    if (s->fd < 0 || credit <= 0)
        return 0;
    if (have)
        memcpy(piece, s->tail.data, have);
    if (s->lines_left) { /* whole lines wait for credit: they go before anything is read */
        give_lines(s, piece, have);
        return 1;
    }
    if (credit < READ_MIN)
        credit = READ_MIN;
    if (credit < (int64_t)room) /* the piece may have less room than that, behind a long tail */
        room = (size_t)credit;
    n = read(s->fd, piece + have, room);
    if (n < 0)
        return errno == EINTR;
    if (n == 0) {
        stream_close(s);
        return 0;
    }
    give_lines(s, piece, have + (size_t)n);
    return 1;
}

/* Its rank has paused within a line, or draws the line again and again, or writes it bit by bit. */
static int tail_is_due(const struct stream *s, int64_t now)
{
    int64_t age = now - s->tail_began_ms;

    return now - s->tail_ms >= PAUSE_MS || age >= SLOW_MS ||
           (age >= PAUSE_MS && memchr(s->tail.data, '\r', s->tail.len));
}

static int stream_has_data(const struct stream *s)
{
    struct pollfd p = {s->fd, POLLIN, 0};

    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

/* What stands there without an end of line and will not have one soon: prompts, progress bars. */
void pump_tails(void *ctx)
{
    struct agent *a = ctx;
    int64_t now = clock_ms();

    a->tails = 0;
    for (struct team *t = a->team; t; t = t->next)
        for (int i = 0; i < 2 * t->n; i++) {
            struct stream *s = &t->rank[i / 2].out[i % 2];

            if (s->tail.len && a->credit > 0 && tail_is_due(s, now) && !stream_has_data(s))
                give_tail(s);
            a->tails |= s->tail.len != 0;
        }
    if (!a->tails)
        ticker_stop(a->tail_ticker);
}

static void stream_watch(struct stream *s)
{
    if (s->fd >= 0)
        watch_set(s->watch, s->rank->team->agent->credit > 0 ? LOOP_READ : 0);
}

static void on_stream(void *ctx, int events)
{
    struct stream *s = ctx;

    stream_piece(s);
    stream_watch(s);
}

int stream_open(struct stream *s, int fd, struct err *err)
{
    s->fd = fd;
    s->watch = watch_create(s->rank->team->agent->loop, fd, on_stream, s, err);
    if (!s->watch)
        return -1;
    stream_watch(s);
    return 0;
}

void stream_never(struct stream *s)
{
    if (s->fd >= 0)
        stream_close(s);
    else
        put_output(s, NULL, 0);
}

/* Without credit the end is still told, when nothing is in front of it. */
static int stream_ended(const struct stream *s)
{
    struct pollfd p = {s->fd, POLLIN, 0};

    return s->fd >= 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLHUP) && !(p.revents & POLLIN);
}

void stream_pump(struct stream *s)
{
    for (int i = 0; i < 64 && stream_piece(s); i++)
        ;
    if (stream_ended(s))
        stream_close(s);
    stream_watch(s);
}

void pump_credit(struct agent *a)
{
    for (struct team *t = a->team; t; t = t->next)
        for (int i = 0; i < 2 * t->n; i++) {
            struct stream *s = &t->rank[i / 2].out[i % 2];

            if (s->lines_left)
                stream_piece(s);
            stream_watch(s);
        }
}

void stdin_close(struct rank *r)
{
    if (r->in_fd < 0)
        return;
    watch_destroy(r->in_watch);
    r->in_watch = NULL;
    close(r->in_fd);
    r->in_fd = -1;
    buf_clear(&r->in);
}

static void want(struct rank *r, uint32_t n)
{
    struct buf b = BUF_INIT;

    put_u32(&b, (uint32_t)r->number);
    put_u32(&b, n);
    chan_sendb(r->team->agent->chan, MSG_WANT, r->team->epoch, &b);
}

static void on_stdin(void *ctx, int events)
{
    struct rank *r = ctx;
    ssize_t n = r->in.len ? write(r->in_fd, r->in.data, r->in.len) : 0;

    if (n < 0 && errno != EINTR &&
        errno != EAGAIN) { /* it closed its stdin: the rest has no reader */
        stdin_close(r);
        want(r, MSG_WANT_ALL);
        return;
    }
    if (n > 0) {
        buf_drop(&r->in, (size_t)n);
        want(r, (uint32_t)n);
    }
    if (!r->in.len && r->in_end)
        stdin_close(r);
    else
        watch_set(r->in_watch, r->in.len ? LOOP_WRITE : 0);
}

int stdin_open(struct rank *r, int fd, struct err *err)
{
    r->in_fd = fd;
    if (fd < 0)
        return 0;
    r->in_watch = watch_create(r->team->agent->loop, fd, on_stdin, r, err);
    return r->in_watch ? 0 : -1;
}

void stdin_begin(struct rank *r)
{
    if (r->in_fd >= 0)
        want(r, MSG_STDIN_BYTES);
}

void team_stdin(struct team *t, int rank, const void *data, size_t n)
{
    for (int i = 0; i < t->n; i++) {
        struct rank *r = &t->rank[i];

        if ((rank >= 0 && r->number != rank) || r->in_fd < 0)
            continue;
        buf_add(&r->in, data, n);
        r->in_end |= n == 0;
        watch_set(r->in_watch, LOOP_WRITE);
    }
}
