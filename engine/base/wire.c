/* Little-endian packing: see wire.h. Invariant of a reader: p <= end; failed means p == end. */
#include "engine/base/wire.h"

#include <stdlib.h>
#include <string.h>

static void put_le(struct buf *b, uint64_t v, int bytes)
{
    uint8_t raw[8];

    for (int i = 0; i < bytes; i++)
        raw[i] = (uint8_t)(v >> (8 * i));
    buf_add(b, raw, (size_t)bytes);
}

void put_u8(struct buf *b, uint8_t v)
{
    put_le(b, v, 1);
}

void put_u16(struct buf *b, uint16_t v)
{
    put_le(b, v, 2);
}

void put_u32(struct buf *b, uint32_t v)
{
    put_le(b, v, 4);
}

void put_u64(struct buf *b, uint64_t v)
{
    put_le(b, v, 8);
}

void put_i64(struct buf *b, int64_t v)
{
    put_le(b, (uint64_t)v, 8);
}

void put_f64(struct buf *b, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, 8);
    put_le(b, bits, 8);
}

void put_bytes(struct buf *b, const void *data, uint32_t n)
{
    put_u32(b, n);
    buf_add(b, data, n);
}

void put_str(struct buf *b, const char *s)
{
    put_bytes(b, s ? s : "", s ? (uint32_t)strlen(s) : 0);
}

/* How many ranks from i on are on the node of rank i. */
static int same_node(const int *node_of, int n, int i)
{
    int end = i + 1;

    while (end < n && node_of[end] == node_of[i])
        end++;
    return end - i;
}

void put_node_of(struct buf *b, const int *node_of, int n)
{
    for (int i = 0; i < n;) {
        int first = node_of[i], ranks = same_node(node_of, n, i), nodes = 1;

        i += ranks;
        while (i < n && node_of[i] == first + nodes && same_node(node_of, n, i) == ranks) {
            nodes++;
            i += ranks;
        }
        put_u32(b, (uint32_t)first);
        put_u32(b, (uint32_t)nodes);
        put_u32(b, (uint32_t)ranks);
    }
}

int node_of_rank(const void *runs, size_t n, int rank)
{
    struct reader r = reader_of(runs, n);
    uint64_t at = 0;

    while (rank >= 0 && r.p < r.end) {
        uint32_t first = get_u32(&r), nodes = get_u32(&r), ranks = get_u32(&r);

        if (r.failed || !ranks)
            return -1;
        if ((uint64_t)rank < at + (uint64_t)nodes * ranks)
            return (int)(first + ((uint64_t)rank - at) / ranks);
        at += (uint64_t)nodes * ranks;
    }
    return -1;
}

int *get_node_of(struct reader *r, int n)
{
    int *node_of = xcalloc((size_t)n, sizeof *node_of), at = 0;

    while (at < n && !r->failed) {
        uint32_t first = get_u32(r), nodes = get_u32(r), ranks = get_u32(r);

        if (!nodes || !ranks || (uint64_t)nodes * ranks > (uint64_t)(n - at))
            r->failed = 1;
        for (uint32_t i = 0; !r->failed && i < nodes * ranks; i++)
            node_of[at++] = (int)(first + i / ranks);
    }
    if (!r->failed)
        return node_of;
    r->p = r->end;
    free(node_of);
    return NULL;
}

struct reader reader_of(const void *data, size_t n)
{
    static const uint8_t nothing[1];
    const uint8_t *p = data ? data : nothing;

    return (struct reader){p, p + (data ? n : 0), 0};
}

/* The next n bytes, NULL when they are not there. */
static const uint8_t *take(struct reader *r, size_t n)
{
    const uint8_t *p = r->p;

    if (r->failed || (size_t)(r->end - r->p) < n) {
        r->failed = 1;
        r->p = r->end;
        return NULL;
    }
    r->p += n;
    return p;
}

static uint64_t get_le(struct reader *r, int bytes)
{
    const uint8_t *p = take(r, (size_t)bytes);
    uint64_t v = 0;

    for (int i = 0; p && i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint8_t get_u8(struct reader *r)
{
    return (uint8_t)get_le(r, 1);
}

uint16_t get_u16(struct reader *r)
{
    return (uint16_t)get_le(r, 2);
}

uint32_t get_u32(struct reader *r)
{
    return (uint32_t)get_le(r, 4);
}

uint64_t get_u64(struct reader *r)
{
    return get_le(r, 8);
}

int64_t get_i64(struct reader *r)
{
    return (int64_t)get_le(r, 8);
}

double get_f64(struct reader *r)
{
    uint64_t bits = get_le(r, 8);
    double v;

    memcpy(&v, &bits, 8);
    return v;
}

const uint8_t *get_bytes(struct reader *r, uint32_t *n)
{
    uint32_t len = get_u32(r);
    const uint8_t *p = take(r, len);

    *n = p ? len : 0;
    return p;
}

char *get_str(struct reader *r)
{
    uint32_t n;
    const uint8_t *p = get_bytes(r, &n);

    if (p && memchr(p, 0, n)) {
        r->failed = 1;
        r->p = r->end;
        p = NULL;
    }
    return p ? xstrndup((const char *)p, n) : xstrdup("");
}

int reader_done(const struct reader *r)
{
    return !r->failed && r->p == r->end;
}
