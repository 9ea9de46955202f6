/* Folding: see gather.h. Hosts are equal as with clush -b: the same exit status and the same bytes, here on each of
 * the two streams, because how the two mix is chance. */
#include "launcher/gather.h"

#include "hostfile/nodelist.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 65536 /* live: a longer line is given out in parts */

struct one {
    struct buf out[2];
    int ended, status, dropped;
    int same; /* the earlier host that has the same; itself when there is none */
    char *said;
};

struct gather {
    char *const *names;
    int n, live;
    void (*emit)(void *ctx, int stream, const char *text, size_t n);
    void *ctx;
    struct one *host;
    size_t kept; /* of all hosts */
    struct buf text;
};

struct gather *gather_create(char *const *names, int n, int live,
                             void (*emit)(void *ctx, int stream, const char *text, size_t n), void *ctx)
{
    struct gather *g = xcalloc(1, sizeof *g);
    int i;

    g->names = names;
    g->n = n;
    g->live = live;
    g->emit = emit;
    g->ctx = ctx;
    g->host = xcalloc((size_t)n, sizeof *g->host);
    for (i = 0; i < n; i++)
        g->host[i].same = i;
    return g;
}

void gather_destroy(struct gather *g)
{
    int i;

    for (i = 0; g && i < g->n; i++) {
        buf_clear(&g->host[i].out[0]);
        buf_clear(&g->host[i].out[1]);
        free(g->host[i].said);
    }
    if (g) {
        buf_clear(&g->text);
        free(g->host);
    }
    free(g);
}

/* The lines in b that are whole go out, in one call; all: the rest as a line, too. */
static void give_lines(struct gather *g, int host, int stream, int all)
{
    struct buf *b = &g->host[host].out[stream - 1];
    size_t at = 0;

    buf_reset(&g->text);
    while (at < b->len) {
        const char *nl = memchr(b->data + at, '\n', b->len - at);
        size_t len = nl ? (size_t)(nl - b->data) - at : b->len - at;

        if (!nl && !all && len < LINE_BYTES)
            break;
        buf_addf(&g->text, "%s: ", g->names[host]);
        buf_add(&g->text, b->data + at, len);
        buf_addc(&g->text, '\n');
        at += len + (nl != NULL);
    }
    buf_drop(b, at);
    if (g->text.len)
        g->emit(g->ctx, stream, g->text.data, g->text.len);
}

void gather_feed(struct gather *g, int host, int stream, const char *data, size_t n)
{
    struct one *h = &g->host[host];
    size_t room = GATHER_HOST_BYTES - h->out[0].len - h->out[1].len, of_all = GATHER_ALL_BYTES - g->kept;

    if (h->ended)
        return;
    if (!g->live) {
        room = room < of_all ? room : of_all;
        h->dropped |= n > room;
        n = n < room ? n : room;
        g->kept += n;
    }
    buf_add(&h->out[stream - 1], data, n);
    if (g->live)
        give_lines(g, host, stream, 0);
}

static int equal(const struct buf *a, const struct buf *b)
{
    return a->len == b->len && (!a->len || !memcmp(a->data, b->data, a->len));
}

void gather_end(struct gather *g, int host, int status, const char *said)
{
    struct one *h = &g->host[host];
    int i;

    if (h->ended)
        return;
    h->ended = 1;
    h->status = status;
    h->said = said && *said ? xstrdup(said) : NULL;
    if (g->live) {
        give_lines(g, host, 1, 1);
        give_lines(g, host, 2, 1);
        return;
    }
    for (i = 0; i < g->n; i++) {
        const struct one *o = &g->host[i];

        if (i != host && o->ended && o->same == i && o->status == status && equal(&o->out[0], &h->out[0]) &&
            equal(&o->out[1], &h->out[1])) {
            h->same = i;
            g->kept -= h->out[0].len + h->out[1].len;
            buf_clear(&h->out[0]);
            buf_clear(&h->out[1]);
            return;
        }
    }
}

static void emit_text(struct gather *g, int stream, const struct buf *b)
{
    if (!b->len)
        return;
    g->emit(g->ctx, stream, b->data, b->len);
    if (g->n > 1 && b->data[b->len - 1] != '\n')
        g->emit(g->ctx, stream, "\n", 1);
}

static void header(struct gather *g, char **names, int n, int stream)
{
    static const char rule[] = "----------------\n";

    buf_reset(&g->text);
    buf_adds(&g->text, rule);
    nodelist_print(names, n, &g->text);
    if (n > 1)
        buf_addf(&g->text, " (%d)", n);
    buf_addf(&g->text, "\n%s", rule);
    g->emit(g->ctx, stream, g->text.data, g->text.len);
}

/* The group whose first member in order is host; its bytes are kept by host[same]. */
static void print_group(struct gather *g, int host, char **names)
{
    int same = g->host[host].same, i, n = 0;
    const struct one *kept = &g->host[same];

    for (i = 0; i < g->n; i++)
        if (g->host[i].same == same)
            names[n++] = g->names[i];
    for (i = 0; i < 2; i++) {
        if (kept->out[i].len && g->n > 1)
            header(g, names, n, i + 1);
        emit_text(g, i + 1, &kept->out[i]);
    }
}

static int is_first(const struct gather *g, int host)
{
    int i;

    for (i = 0; i < host; i++)
        if (g->host[i].same == g->host[host].same)
            return 0;
    return 1;
}

static void print_said(struct gather *g, char **names, struct buf *said)
{
    uint8_t *done = xcalloc((size_t)g->n, 1);
    int i, k, n;

    for (i = 0; i < g->n; i++) {
        for (k = i, n = 0; g->host[i].said && !done[i] && k < g->n; k++)
            if (g->host[k].said && !strcmp(g->host[k].said, g->host[i].said)) {
                names[n++] = g->names[k];
                done[k] = k > i;
            }
        if (!n)
            continue;
        nodelist_print(names, n, said);
        buf_addf(said, ": %s\n", g->host[i].said);
    }
    for (i = n = 0; i < g->n; i++)
        if (g->host[i].dropped)
            names[n++] = g->names[i];
    if (n) {
        nodelist_print(names, n, said);
        buf_addf(said, ": output was dropped: %u MiB are kept of a host, %u MiB of all; take --live\n",
                 GATHER_HOST_BYTES >> 20, GATHER_ALL_BYTES >> 20);
    }
    free(done);
}

void gather_print(struct gather *g, struct buf *said)
{
    char **names = xcalloc((size_t)g->n + 1, sizeof *names);
    int i;

    for (i = 0; i < g->n && !g->live; i++)
        if (is_first(g, i))
            print_group(g, i, names);
    print_said(g, names, said);
    free(names);
}
