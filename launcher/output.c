/* Lines and prefixes: see output.h.
 *
 * Invariants: open_rank/open_stream name the one unfinished line that stands on the screen, -1: none, and before
 * anybody else writes, a newline ends it. A stream stands in waiting exactly when its line holds something. */
#include "launcher/output.h"

#include "launcher/fold.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RANKS_BYTES 80            /* of the rank list in front of a folded line */
#define TAIL_BYTES 8192           /* of a rank's last output, in a world of a few thousand */
#define TAILS_BYTES (6u << 20)    /* of all ranks together */

struct stream {
    struct buf line;   /* not yet given out */
    int rank, which;
    int waiting;       /* 1 + its place among the waiting; 0: not there */
    uint8_t begun;     /* a part of the line was given out before */
    uint8_t broken;    /* and somebody wrote since */
    uint8_t bar;       /* it is drawn again and again */
    int64_t since_ms;  /* when line got its first byte; of a bar: when it was given out last */
};

struct rank_out {
    struct stream stream[2];
    struct buf tail;
};

struct output {
    int world, open_rank, open_stream;
    struct output_style style;
    int raw; /* a lone program: byte for byte */
    const char *const *hosts;
    struct rank_out *rank;
    struct fold *fold;
    struct buf text, prefix; /* being put together */
    struct buf live;         /* the bar on the screen */
    struct stream **waiting;
    int nwaiting, waiting_cap;
    size_t tail_max;
    int64_t second; /* of the time that clock has as text */
    char clock[16];
};

/* ---- words */

int output_prefix_parse(const char *words)
{
    static const struct {
        const char *name;
        int bits;
    } known[] = {{"none", 0}, {"rank", PREFIX_RANK}, {"host", PREFIX_HOST}, {"host:rank", PREFIX_HOST},
                 {"time", PREFIX_TIME}};
    int bits = 0, n = 0, none = 0;
    size_t i, len;

    for (;; words += len + 1, n++) {
        len = strcspn(words, ",");
        for (i = 0; i < sizeof known / sizeof known[0]; i++)
            if (strlen(known[i].name) == len && !strncmp(known[i].name, words, len))
                break;
        if (i == sizeof known / sizeof known[0])
            return -1;
        bits |= known[i].bits;
        none |= !known[i].bits;
        if (!words[len])
            break;
    }
    return (none && n) || (bits & PREFIX_RANK && bits & PREFIX_HOST) ? -1 : bits;
}

int output_wants_color(const char *option, const char *no_color, const char *clicolor, const char *force, int terminal)
{
    if (option && strcmp(option, "auto"))
        return !strcmp(option, "always");
    if (no_color && *no_color)
        return 0;
    if (force && *force && strcmp(force, "0"))
        return 1;
    return terminal && !(clicolor && !strcmp(clicolor, "0"));
}

/* ---- life */

static void emit_folded(void *ctx, int stream, const int *rank, int n, const char *text, size_t len);

struct output *output_create(int world, const struct output_style *style, const char *const *hosts)
{
    struct output *o = xcalloc(1, sizeof *o);
    int r, k;

    o->world = world;
    o->style = *style;
    o->raw = world == 1 && style->prefix == PREFIX_NONE;
    o->hosts = hosts;
    o->open_rank = -1;
    o->second = -1;
    o->tail_max = TAILS_BYTES / (size_t)world < TAIL_BYTES ? TAILS_BYTES / (size_t)world : TAIL_BYTES;
    o->rank = xcalloc((size_t)world, sizeof *o->rank);
    for (r = 0; r < world; r++)
        for (k = 0; k < 2; k++) {
            o->rank[r].stream[k].rank = r;
            o->rank[r].stream[k].which = k + 1;
        }
    if (style->fold && !o->raw)
        o->fold = fold_create(world, emit_folded, o);
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
    fold_destroy(o->fold);
    buf_clear(&o->text);
    buf_clear(&o->prefix);
    buf_clear(&o->live);
    free(o->waiting);
    free(o->rank);
    free(o);
}

/* ---- prefixes */

static void add_time(struct output *o, struct buf *to)
{
    double now = o->style.wall ? o->style.wall() : 0;
    int64_t second = (int64_t)now;
    time_t t = (time_t)second;
    struct tm tm;

    if (second != o->second && localtime_r(&t, &tm))
        strftime(o->clock, sizeof o->clock, "%H:%M:%S", &tm);
    o->second = second;
    buf_addf(to, "%s.%03d ", o->clock, (int)((now - (double)second) * 1000));
}

/* "[0-31]"; a list that has no end is cut: "[0,8,16,... 4096 ranks]". */
static void add_ranks(struct buf *p, const int *rank, int n)
{
    struct buf list = BUF_INIT;
    size_t cut = RANKS_BYTES;

    ranks_print(rank, n, &list);
    while (list.len > RANKS_BYTES && list.data[cut - 1] != ',')
        cut--;
    if (list.len > RANKS_BYTES)
        buf_addf(p, "[%.*s... %d ranks]", (int)cut, list.data, n);
    else
        buf_addf(p, "[%s]", buf_str(&list));
    buf_clear(&list);
}

/* The prefix of lines of these ranks (one, or several that are folded), in colour where asked for. */
static void make_prefix(struct output *o, const int *rank, int n)
{
    static const char color[] = "236451"; /* green cyan ... by rank: neighbours differ */
    struct buf *p = &o->prefix;
    int bits = o->style.prefix;

    buf_reset(p);
    if (!bits)
        return;
    if (bits & PREFIX_TIME)
        add_time(o, p);
    if (o->style.color && bits != PREFIX_TIME)
        buf_addf(p, "\033[3%cm", color[rank[0] % 6]);
    if (bits & (PREFIX_RANK | PREFIX_HOST) && n > 1) {
        add_ranks(p, rank, n);
    } else if (bits & PREFIX_RANK) {
        buf_addf(p, "[%d]", rank[0]);
    } else if (bits & PREFIX_HOST) {
        buf_addf(p, "%s:%d:", o->hosts[rank[0]], rank[0]);
    }
    if (o->style.color && bits != PREFIX_TIME)
        buf_adds(p, "\033[0m");
    if (bits != PREFIX_TIME)
        buf_addc(p, ' ');
}

/* ---- what a line becomes: no carriage returns, no moves of the cursor */

/* n bytes of an escape sequence at p[0..len) that moves something; 0: it may stay. */
static size_t escape_to_drop(const char *p, size_t len)
{
    size_t i = 2;

    if (len < 2)
        return 1; /* cut off: of no use to anybody */
    if (p[1] != '[')
        return p[1] == ']' || (p[1] >= 0x40 && p[1] <= 0x5f) ? 2 : 1;
    while (i < len && (p[i] < 0x40 || p[i] > 0x7e))
        i++;
    return i < len && p[i] == 'm' ? 0 : i < len ? i + 1 : len;
}

/* data without what lies in front of its last carriage return but one at the end, and without cursor moves. */
static void cook(const struct output *o, const char **data, size_t *n, struct buf *room)
{
    const char *p = *data, *end, *cr, *esc;
    size_t drop, left;

    while (*n && p[*n - 1] == '\r')
        --*n;
    cr = memrchr(p, '\r', *n);
    if (cr) {
        *n -= (size_t)(cr + 1 - p);
        *data = p = cr + 1;
    }
    if (!memchr(p, '\033', *n))
        return;
    buf_reset(room);
    for (end = p + *n; (esc = memchr(p, '\033', (size_t)(end - p))); p = esc + (drop ? drop : 1)) {
        left = (size_t)(end - esc);
        drop = escape_to_drop(esc, left);
        buf_add(room, p, (size_t)(esc - p) + (drop == 0));
    }
    buf_add(room, p, (size_t)(end - p));
    if (o->style.color)
        buf_adds(room, "\033[0m");
    *data = buf_str(room);
    *n = room->len;
}

/* ---- giving out */

static void flush_text(struct output *o, int stream)
{
    if (o->text.len)
        o->style.emit(o->style.ctx, stream, &o->text);
    buf_reset(&o->text);
}

/* The screen's unfinished line ends, unless it is this one. */
static void end_open(struct output *o, int rank, int stream)
{
    struct stream *s;
    struct buf end = BUF_INIT;

    if (o->open_rank < 0 || (o->open_rank == rank && o->open_stream == stream))
        return;
    s = &o->rank[o->open_rank].stream[o->open_stream - 1];
    buf_adds(&end, o->raw ? "\n" : "...\n");
    o->style.emit(o->style.ctx, o->open_stream, &end);
    buf_clear(&end);
    s->broken = s->begun && !o->raw;
    s->begun = 0;
    o->open_rank = -1;
}

static void emit_folded(void *ctx, int stream, const int *rank, int n, const char *text, size_t len)
{
    struct output *o = ctx;

    end_open(o, -1, 0);
    make_prefix(o, rank, n);
    buf_add(&o->text, o->prefix.data, o->prefix.len);
    buf_add(&o->text, text, len);
    buf_addc(&o->text, '\n');
    flush_text(o, stream);
}

/* One line or part of one into text; ends: its newline is there. The prefix is made. */
static void add_line(struct output *o, struct stream *s, const char *data, size_t n, int ends, int64_t now_ms)
{
    struct buf room = BUF_INIT;
    const char *from = data;

    if (!o->raw)
        cook(o, &data, &n, &room);
    if (s->begun && data != from && data != room.data) { /* a carriage return: the part that stands there is over */
        buf_addc(&o->text, '\n');
        s->begun = 0;
    }
    if (o->fold && ends && !s->begun && !s->broken) {
        flush_text(o, s->which);
        fold_line(o->fold, s->rank, s->which, data, n, now_ms);
    } else {
        if (!s->begun) {
            buf_add(&o->text, o->prefix.data, o->prefix.len);
            if (s->broken)
                buf_adds(&o->text, "... ");
        }
        buf_add(&o->text, data, n);
        if (ends)
            buf_addc(&o->text, '\n');
        o->open_rank = ends ? -1 : s->rank;
        o->open_stream = s->which;
        s->begun = !ends;
        s->broken = 0;
    }
    buf_clear(&room);
}

static void wait_more(struct output *o, struct stream *s)
{
    if (s->waiting)
        return;
    if (o->nwaiting >= o->waiting_cap) {
        o->waiting_cap = o->waiting_cap ? o->waiting_cap * 2 : 16;
        o->waiting = xrealloc(o->waiting, (size_t)o->waiting_cap * sizeof *o->waiting);
    }
    o->waiting[o->nwaiting++] = s;
    s->waiting = o->nwaiting;
}

/* Its line is empty again. */
static void wait_no_more(struct output *o, struct stream *s)
{
    struct stream *last;

    if (o->world > 1000)
        buf_clear(&s->line);
    else
        buf_reset(&s->line);
    s->bar = 0;
    if (!s->waiting)
        return;
    last = o->waiting[--o->nwaiting];
    o->waiting[s->waiting - 1] = last;
    last->waiting = s->waiting;
    s->waiting = 0;
}

/* Gives out the unfinished line of a stream as it is. */
static void give_partial(struct output *o, struct stream *s, int ends, int64_t now_ms)
{
    if (!s->line.len && !(ends && (s->begun || s->broken)))
        return;
    if (o->fold)
        fold_until(o->fold, s->rank);
    end_open(o, s->rank, s->which);
    if (s->line.len || s->begun) {
        make_prefix(o, &s->rank, 1);
        add_line(o, s, buf_str(&s->line), s->line.len, ends, now_ms);
    }
    s->broken = 0;
    wait_no_more(o, s);
    flush_text(o, s->which);
}

static void keep_tail(struct output *o, struct rank_out *r, const char *data, size_t n)
{
    if (n > o->tail_max) {
        data += n - o->tail_max;
        n = o->tail_max;
    }
    if (r->tail.len + n > 2 * o->tail_max)
        buf_drop(&r->tail, r->tail.len + n - o->tail_max < r->tail.len ? r->tail.len + n - o->tail_max : r->tail.len);
    buf_add(&r->tail, data, n);
}

/* What does not end here: waits for more. */
static void keep_line(struct output *o, struct stream *s, const char *data, size_t n, int64_t now_ms)
{
    const char *cr;
    size_t len;

    if (!s->line.len)
        s->since_ms = now_ms;
    buf_add(&s->line, data, n);
    wait_more(o, s);
    if (o->raw)
        return;
    for (len = s->line.len; len && s->line.data[len - 1] == '\r'; len--)
        ;
    cr = memrchr(s->line.data, '\r', len);
    if (cr || len < s->line.len) {
        s->since_ms = s->bar ? s->since_ms : now_ms - OUTPUT_BAR_MS; /* its first state is shown soon */
        s->bar = 1;
    }
    if (cr)
        buf_drop(&s->line, (size_t)(cr + 1 - s->line.data));
}

void output_feed(struct output *o, int rank, int stream, const char *data, size_t n, int64_t now_ms)
{
    struct stream *s = &o->rank[rank].stream[stream - 1];
    const char *nl;

    if (!n) { /* a lone program's output stays byte for byte what it was */
        give_partial(o, s, !o->raw, now_ms);
        if (o->fold && stream == 1)
            fold_over(o->fold, rank);
        return;
    }
    keep_tail(o, &o->rank[rank], data, n);
    nl = memchr(data, '\n', n);
    if (nl) {
        make_prefix(o, &rank, 1);
        end_open(o, rank, stream);
        buf_reserve(&o->text, n + n / 4);
    }
    for (; nl; nl = memchr(data, '\n', n)) {
        size_t len = (size_t)(nl - data);

        if (s->line.len) {
            buf_add(&s->line, data, len);
            add_line(o, s, s->line.data, s->line.len, 1, now_ms);
            wait_no_more(o, s);
        } else if (len || !s->bar) { /* else the end of a bar whose last state is a line already */
            add_line(o, s, data, len, 1, now_ms);
        }
        s->bar = 0;
        data = nl + 1;
        n -= len + 1;
    }
    flush_text(o, stream);
    if (!n)
        return;
    keep_line(o, s, data, n, now_ms);
    if (s->line.len > OUTPUT_LINE_BYTES)
        give_partial(o, s, 0, now_ms);
}

void output_own(struct output *o, int stream, const char *text, size_t n)
{
    struct buf b = BUF_INIT;

    if (o->fold)
        fold_flush(o->fold);
    end_open(o, -1, 0);
    buf_add(&b, text, n);
    o->style.emit(o->style.ctx, stream, &b);
    buf_clear(&b);
}

void output_flush(struct output *o)
{
    int r, k;

    for (r = 0; r < o->world; r++)
        for (k = 1; k <= 2; k++)
            output_feed(o, r, k, NULL, 0, 0);
    if (o->fold)
        fold_flush(o->fold);
}

/* ---- progress bars */

/* Its newest state: a line of its own; the bar goes on. */
static void give_bar(struct output *o, struct stream *s, int64_t now_ms)
{
    struct buf state = BUF_INIT;

    buf_add(&state, s->line.data, s->line.len);
    if (o->fold)
        fold_until(o->fold, s->rank);
    end_open(o, -1, 0);
    s->broken = 0;
    make_prefix(o, &s->rank, 1);
    add_line(o, s, state.data, state.len, 1, now_ms);
    flush_text(o, s->which);
    buf_clear(&state);
    wait_no_more(o, s);
    s->bar = 1;
    s->since_ms = now_ms;
}

/* The terminal's live line is the bar of the lowest rank that has one. */
static void draw_bar(struct output *o, const struct stream *s)
{
    struct buf line = BUF_INIT, room = BUF_INIT;
    const char *data;
    size_t n;

    if (s) {
        data = s->line.data;
        n = s->line.len;
        cook(o, &data, &n, &room);
        make_prefix(o, &s->rank, 1);
        buf_add(&line, o->prefix.data, o->prefix.len);
        buf_add(&line, data, n);
    }
    if (strcmp(buf_str(&line), buf_str(&o->live)))
        o->style.live(o->style.ctx, buf_str(&line));
    buf_clear(&o->live);
    buf_clear(&room);
    o->live = line;
}

void output_tick(struct output *o, int64_t now_ms)
{
    struct stream *bar = NULL;
    int i;

    if (o->fold)
        fold_tick(o->fold, now_ms);
    for (i = o->nwaiting - 1; i >= 0; i--) {
        struct stream *s = o->waiting[i];

        if (s->bar && o->style.live)
            bar = !bar || s->rank < bar->rank ? s : bar;
        else if (s->bar && now_ms - s->since_ms >= OUTPUT_BAR_MS)
            give_bar(o, s, now_ms);
        else if (!s->bar && now_ms - s->since_ms >= OUTPUT_PARTIAL_MS)
            give_partial(o, s, 0, now_ms);
    }
    if (o->style.live && (bar || o->live.len))
        draw_bar(o, bar);
}

/* Lines as the terminal got them; blank ones only between others. */
static void add_tail(const struct output *o, const char *text, size_t left, struct buf *out)
{
    struct buf room = BUF_INIT;
    size_t before = out->len, blank = 0;

    while (left) {
        const char *nl = memchr(text, '\n', left), *line = text;
        size_t whole = nl ? (size_t)(nl - text) + 1 : left, n = nl ? whole - 1 : whole;

        cook(o, &line, &n, &room);
        while (n && strchr(" \t", line[n - 1]) && line[n - 1])
            n--;
        if (n) {
            for (; out->len > before && blank; blank--)
                buf_addc(out, '\n');
            buf_add(out, line, n);
            blank = 0;
        }
        blank++;
        text += whole;
        left -= whole;
    }
    buf_clear(&room);
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
    add_tail(o, t->data + at, end - at, out);
}
