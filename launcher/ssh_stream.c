/* What of a stream needs no libssh: its queue, and who may still be told what. See ssh_stream.h. */
#include "launcher/ssh_stream.h"

#include <stdio.h>

#define COMPACT_BYTES 65536

int ssh_stream_gone(const struct ssh_stream *s)
{
    return s->closed || ssh_wire_closing(s->wire);
}

void ssh_stream_finish(struct ssh_stream *s, const char *why)
{
    if (s->state == STREAM_ENDED)
        return;
    s->state = STREAM_ENDED;
    snprintf(s->end.why, sizeof s->end.why, "%.255s", why);
    if (!ssh_stream_gone(s))
        s->ev.end(s->ctx, &s->end);
}

void ssh_stream_send(struct ssh_stream *s, const void *data, size_t n)
{
    if (s->state == STREAM_ENDED || s->want_eof)
        return;
    if (s->sent > COMPACT_BYTES && s->sent > s->out.len / 2) {
        buf_drop(&s->out, s->sent);
        s->sent = 0;
    }
    buf_add(&s->out, data, n);
    s->was_busy = 1;
    ssh_wire_kick(s->wire);
}

size_t ssh_stream_next(const struct ssh_stream *s, size_t most, const char **data)
{
    size_t left = s->out.len - s->sent;

    *data = left ? s->out.data + s->sent : NULL;
    return left < most ? left : most;
}

void ssh_stream_taken(struct ssh_stream *s, size_t n)
{
    s->sent += n;
    if (s->sent == s->out.len) {
        buf_reset(&s->out);
        s->sent = 0;
    }
}

void ssh_stream_drained(struct ssh_stream *s)
{
    if (!s->was_busy)
        return;
    s->was_busy = 0;
    if (s->ev.drained)
        s->ev.drained(s->ctx);
}

size_t ssh_stream_pending(const struct ssh_stream *s)
{
    size_t unsent = s->state != STREAM_ENDED && ssh_wire_unsent(s->wire);

    return s->out.len - s->sent + unsent;
}

void ssh_stream_eof(struct ssh_stream *s)
{
    s->want_eof = 1;
    ssh_wire_kick(s->wire);
}

void ssh_stream_pause(struct ssh_stream *s, int paused)
{
    s->paused = paused;
    ssh_wire_kick(s->wire);
}

void ssh_stream_close(struct ssh_stream *s)
{
    if (!s)
        return;
    s->closed = 1;
    ssh_wire_kick(s->wire);
}
