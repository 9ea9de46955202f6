/* Folding: see fold.h. A group is one line and the ranks that wrote it. Groups stand in a list in the order in which
 * their first rank came and leave it from the head only; a rank joins a group only behind the last one it is in, so
 * its lines keep their order. Equal lines are found through a hash table; in lock step the next group of the list is
 * the right one, so that is looked at first. */
#include "launcher/fold.h"

#include "engine/base/hash.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 4096
#define LOOK_AHEAD 4 /* groups behind the last one that are compared directly */
#define LOOK_BACK 64 /* groups of one hash slot that are compared */

struct group {
    struct group *next;      /* in the list */
    struct group *same_slot; /* older ones */
    uint64_t seq, hash;
    int64_t since_ms, joined_ms; /* first and last rank came */
    int stream, n, cap;
    int *rank;
    size_t len;
    char text[];
};

struct fold {
    int live;           /* ranks that may still write */
    uint8_t *is_over;   /* [world] */
    uint64_t *in_head;  /* [world] seq of the head that this rank is in */
    int head_live;      /* live ranks in the head */
    fold_emit *emit;
    void *ctx;
    uint64_t *last; /* [world] seq of the last group with this rank; 0: none */
    struct group **at; /* [world] that group while it is in the list */
    struct group *head, **tail, *slot[SLOTS];
    uint64_t seq;
    size_t bytes;
};

struct fold *fold_create(int world, fold_emit *emit, void *ctx)
{
    struct fold *f = xcalloc(1, sizeof *f);

    f->live = world;
    f->in_head = xcalloc((size_t)world, sizeof *f->in_head);
    f->is_over = xcalloc((size_t)world, 1);
    f->emit = emit;
    f->ctx = ctx;
    f->last = xcalloc((size_t)world, sizeof *f->last);
    f->at = xcalloc((size_t)world, sizeof *f->at);
    f->tail = &f->head;
    return f;
}

static int ascending(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

/* The head leaves the list. */
static struct group *take_head(struct fold *f)
{
    struct group *g = f->head, **p = &f->slot[g->hash % SLOTS];
    int i;

    f->head = g->next;
    if (!f->head)
        f->tail = &f->head;
    while (*p != g)
        p = &(*p)->same_slot;
    *p = g->same_slot;
    f->bytes -= g->len + sizeof *g;
    for (i = 0; i < g->n; i++)
        if (f->at[g->rank[i]] == g)
            f->at[g->rank[i]] = NULL;
    return g;
}

static void into_head(struct fold *f, int rank)
{
    f->in_head[rank] = f->head->seq;
    f->head_live += !f->is_over[rank];
}

static void new_head(struct fold *f)
{
    int i;

    f->head_live = 0;
    for (i = 0; f->head && i < f->head->n; i++)
        into_head(f, f->head->rank[i]);
}

static void emit_head(struct fold *f)
{
    struct group *g = take_head(f);

    new_head(f);

    qsort(g->rank, (size_t)g->n, sizeof *g->rank, ascending);
    f->emit(f->ctx, g->stream, g->rank, g->n, g->text, g->len);
    free(g->rank);
    free(g);
}

void fold_destroy(struct fold *f)
{
    if (!f)
        return;
    while (f->head) {
        struct group *g = take_head(f);

        free(g->rank);
        free(g);
    }
    free(f->is_over);
    free(f->in_head);
    free(f->last);
    free(f->at);
    free(f);
}

static int is_line(const struct group *g, int stream, uint64_t hash, const char *text, size_t len)
{
    return g->hash == hash && g->stream == stream && g->len == len && !memcmp(g->text, text, len);
}

/* A group with this line behind the last one of the rank; the oldest that is found. */
static struct group *find(struct fold *f, int rank, int stream, uint64_t hash, const char *text, size_t len)
{
    struct group *g = f->at[rank] ? f->at[rank]->next : f->head, *found = NULL;
    int i;

    for (i = 0; g && i < LOOK_AHEAD; i++, g = g->next)
        if (is_line(g, stream, hash, text, len))
            return g;
    g = f->slot[hash % SLOTS];
    for (i = 0; g && g->seq > f->last[rank] && i < LOOK_BACK; i++, g = g->same_slot)
        if (is_line(g, stream, hash, text, len))
            found = g;
    return found;
}

/* What needs to wait no longer: everybody who can has joined. */
static void emit_full(struct fold *f)
{
    while (f->head && f->head_live >= f->live)
        emit_head(f);
}

static void set_over(struct fold *f, int rank, int over)
{
    int by = f->is_over[rank] - over;

    f->is_over[rank] = (uint8_t)over;
    f->live += by;
    if (f->head && f->in_head[rank] == f->head->seq)
        f->head_live += by;
}

void fold_line(struct fold *f, int rank, int stream, const char *text, size_t len, int64_t now_ms)
{
    uint64_t hash = hash64(text, len) + (uint64_t)stream;
    struct group *g = find(f, rank, stream, hash, text, len);

    set_over(f, rank, 0); /* it was started again */
    if (!g) {
        g = xmalloc(sizeof *g + len);
        *g = (struct group){.seq = ++f->seq, .hash = hash, .since_ms = now_ms, .stream = stream, .len = len,
                            .same_slot = f->slot[hash % SLOTS]};
        memcpy(g->text, text, len);
        f->slot[hash % SLOTS] = g;
        *f->tail = g;
        f->tail = &g->next;
        f->bytes += len + sizeof *g;
        if (f->head == g)
            new_head(f);
    }
    ARRAY_GROW(g->rank, g->n, g->cap);
    g->rank[g->n++] = rank;
    g->joined_ms = now_ms;
    f->last[rank] = g->seq;
    f->at[rank] = g;
    if (f->head == g)
        into_head(f, rank);
    emit_full(f);
    while (f->bytes > FOLD_BYTES)
        emit_head(f);
}

void fold_over(struct fold *f, int rank)
{
    set_over(f, rank, 1);
    emit_full(f);
}

void fold_until(struct fold *f, int rank)
{
    while (f->head && f->at[rank])
        emit_head(f);
}

void fold_tick(struct fold *f, int64_t now_ms)
{
    while (f->head && (now_ms - f->head->joined_ms >= FOLD_MS || now_ms - f->head->since_ms >= FOLD_MAX_MS))
        emit_head(f);
}

void fold_flush(struct fold *f)
{
    while (f->head)
        emit_head(f);
}

void ranks_print(const int *rank, int n, struct buf *out)
{
    int i, end;

    for (i = 0; i < n; i = end) {
        for (end = i + 1; end < n && rank[end] == rank[end - 1] + 1; end++)
            ;
        buf_addf(out, i ? ",%d" : "%d", rank[i]);
        if (end > i + 1)
            buf_addf(out, "-%d", rank[end - 1]);
    }
}
