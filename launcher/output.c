/* Lines and prefixes: see output.h.
 *
 * Invariant: open_rank/open_stream name the one unfinished line that stands on the screen, -1: none. Before
 * anybody else writes, a newline ends it. */
#include "launcher/output.h"

#include <stdlib.h>
#include <string.h>

struct stream {
    struct buf line;   /* not yet given out */
    int begun;         /* a part of the line was given out before */
    int64_t since_ms;  /* when line got its first byte */
};

struct rank_out {
    struct stream stream[2];
    struct buf tail;
};

struct output {
    int world, open_rank, open_stream;
    enum output_prefix prefix;
    const char *const *hosts;
    void (*emit)(void *ctx, int stream, const char *text, size_t n);
    void *ctx;
    struct rank_out *rank;
    struct buf text;    /* being put together for emit */
    int unfinished;     /* streams with something in line */
};

struct output *output_create(int world, enum output_prefix prefix, const char *const *hosts,
                             void (*emit)(void *ctx, int stream, const char *text, size_t n), void *ctx)
{
    struct output *o = xcalloc(1, sizeof *o);

    o->world = world;
    o->prefix = prefix;
    o->hosts = hosts;
    o->emit = emit;
    o->ctx = ctx;
    o->open_rank = -1;
    o->rank = xcalloc((size_t)world, sizeof *o->rank);
    return o;
}

void output_destroy(struct output *o)
{
    int r;

    if (!o)
        return;
    for (r = 0; r < o->world; r++) {
        buf_clear(&o->rank[r].stream[0].line);
        buf_clear(&o->rank[r].stream[1].line);
        buf_clear(&o->rank[r].tail);
    }
    buf_clear(&o->text);
    free(o->rank);
    free(o);
}

static void add_prefix(struct output *o, int rank)
{
    if (o->prefix == PREFIX_RANK)
        buf_addf(&o->text, "[%d] ", rank);
    else if (o->prefix == PREFIX_HOST)
        buf_addf(&o->text, "%s:%d: ", o->hosts[rank], rank);
}

/* The screen's unfinished line ends, unless it is this one. */
static void end_open(struct output *o, int rank, int stream)
{
    if (o->open_rank < 0 || (o->open_rank == rank && o->open_stream == stream))
        return;
    o->emit(o->ctx, o->open_stream, "\n", 1);
    o->rank[o->open_rank].stream[o->open_stream - 1].begun = 0;
    o->open_rank = -1;
}

static void flush_text(struct output *o, int stream)
{
    if (o->text.len)
        o->emit(o->ctx, stream, o->text.data, o->text.len);
    buf_reset(&o->text);
}

/* One line or part of one into text; ends: its newline is there. */
static void add_line(struct output *o, int rank, int stream, const char *data, size_t n, int ends)
{
    struct stream *s = &o->rank[rank].stream[stream - 1];

    if (!s->begun)
        add_prefix(o, rank);
    buf_add(&o->text, data, n);
    if (ends)
        buf_addc(&o->text, '\n');
    s->begun = !ends;
    o->open_rank = ends ? -1 : rank;
    o->open_stream = stream;
}

/* Gives out the unfinished line of a stream as it is. */
static void give_partial(struct output *o, int rank, int stream, int ends)
{
    struct stream *s = &o->rank[rank].stream[stream - 1];

    if (!s->line.len && !(ends && s->begun))
        return;
    end_open(o, rank, stream);
    if (s->line.len || s->begun)
        add_line(o, rank, stream, buf_str(&s->line), s->line.len, ends);
    o->unfinished -= s->line.len > 0;
    buf_reset(&s->line);
    flush_text(o, stream);
}

static void keep_tail(struct rank_out *r, const char *data, size_t n)
{
    const char *p;
    int lines = 0;
    size_t at;

    if (n > OUTPUT_LINE_BYTES) {
        data += n - OUTPUT_LINE_BYTES;
        n = OUTPUT_LINE_BYTES;
    }
    buf_add(&r->tail, data, n);
    if (r->tail.len < 8192)
        return;
    at = r->tail.len;
    for (p = r->tail.data + at - 1; p > r->tail.data && lines <= OUTPUT_TAIL_LINES; p--)
        if (*p == '\n' && ++lines <= OUTPUT_TAIL_LINES)
            at = (size_t)(p - r->tail.data) + 1;
    if (lines <= OUTPUT_TAIL_LINES)
        at = r->tail.len > OUTPUT_LINE_BYTES ? r->tail.len - OUTPUT_LINE_BYTES : 0;
    buf_drop(&r->tail, at);
}

void output_feed(struct output *o, int rank, int stream, const char *data, size_t n, int64_t now_ms)
{
    struct stream *s = &o->rank[rank].stream[stream - 1];
    const char *nl;

    if (!n) { /* a lone program's output stays byte for byte what it was */
        give_partial(o, rank, stream, o->world > 1 || o->prefix != PREFIX_NONE);
        return;
    }
    keep_tail(&o->rank[rank], data, n);
    while ((nl = memchr(data, '\n', n))) {
        size_t len = (size_t)(nl - data);

        end_open(o, rank, stream);
        if (s->line.len) {
            buf_add(&s->line, data, len);
            add_line(o, rank, stream, s->line.data, s->line.len, 1);
            buf_reset(&s->line);
            o->unfinished--;
        } else {
            add_line(o, rank, stream, data, len, 1);
        }
        data = nl + 1;
        n -= len + 1;
    }
    flush_text(o, stream);
    if (!n)
        return;
    if (!s->line.len) {
        s->since_ms = now_ms;
        o->unfinished++;
    }
    buf_add(&s->line, data, n);
    if (s->line.len > OUTPUT_LINE_BYTES)
        give_partial(o, rank, stream, 0);
}

void output_own(struct output *o, int stream, const char *text, size_t n)
{
    end_open(o, -1, 0);
    o->emit(o->ctx, stream, text, n);
}

int64_t output_tick(struct output *o, int64_t now_ms)
{
    int64_t due = -1;
    int r, k;

    for (r = 0; r < o->world && o->unfinished; r++)
        for (k = 1; k <= 2; k++) {
            struct stream *s = &o->rank[r].stream[k - 1];
            int64_t left = s->since_ms + OUTPUT_PARTIAL_MS - now_ms;

            if (!s->line.len)
                continue;
            if (left <= 0)
                give_partial(o, r, k, 0);
            else if (due < 0 || left < due)
                due = left;
        }
    return due;
}

void output_tail(const struct output *o, int rank, struct buf *out)
{
    const struct buf *t = &o->rank[rank].tail;
    size_t at = t->len, end = t->len;
    int lines = 0;

    if (end && t->data[end - 1] == '\n')
        end--;
    for (at = end; at > 0 && lines < OUTPUT_TAIL_LINES; at--)
        if (t->data[at - 1] == '\n' && ++lines == OUTPUT_TAIL_LINES)
            break;
    if (end > at)
        buf_add(out, t->data + at, end - at);
}
