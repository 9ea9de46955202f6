/* What is written: a file's image and the manifest's text. See format.h and FORMAT.md.
 * Invariant of an image: the data parts of its fragments are dense and in the order of the header.
 */
#include "engine/base/hash.h"
#include "engine/ckpt/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int shape_total(const uint64_t *shape, int ndim, uint64_t *total)
{
    uint64_t t = 1;

    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(t, shape[i], &t))
            return -1;
    if (t > INT64_MAX / sizeof(float))
        return -1;
    *total = t;
    return 0;
}

static void add_string(struct buf *out, const char *s)
{
    buf_addc(out, '"');
    buf_add_json(out, s, strlen(s));
    buf_addc(out, '"');
}

static void add_shape(struct buf *out, const uint64_t *shape, int ndim, const char *between)
{
    for (int i = 0; i < ndim; i++)
        buf_addf(out, "%s%llu", i ? between : "", (unsigned long long)shape[i]);
}

static void add_number(struct buf *out, const char *key, double v)
{
    if (isfinite(v))
        buf_addf(out, "\"%s\":%.17g,", key, v);
    else
        buf_addf(out, "\"%s\":null,", key);
}

static void add_int(struct buf *out, const char *key, int64_t v)
{
    buf_addf(out, "\"%s\":%lld,", key, (long long)v);
}

static void add_hex(struct buf *out, const char *key, uint64_t v)
{
    buf_addf(out, "\"%s\":\"%016llx\",", key, (unsigned long long)v);
}

static void add_text(struct buf *out, const char *key, const char *s)
{
    buf_addf(out, "\"%s\":", key);
    add_string(out, s ? s : "");
    buf_addc(out, ',');
}

/* The fields of meta, a comma behind each. */
static void add_meta(struct buf *out, const struct ckpt_meta *m)
{
    add_int(out, "step", m->step);
    add_int(out, "update", m->update);
    add_int(out, "samples", m->samples);
    add_int(out, "applied", m->applied);
    add_number(out, "loss_scale", m->loss_scale);
    add_int(out, "good_steps", m->good_steps);
    add_int(out, "hysteresis", m->hysteresis);
    add_hex(out, "seed", m->seed);
    add_hex(out, "data_hash", m->data_hash);
    add_hex(out, "config_hash", m->config_hash);
    add_int(out, "world", m->world);
    add_int(out, "threads", m->threads);
    add_text(out, "mesh", m->mesh);
    add_text(out, "isa", m->isa);
    add_text(out, "build", m->build);
    add_number(out, "loss", m->loss);
    add_number(out, "valid_loss", m->valid_loss);
    add_text(out, "config", m->config);
}

/* Metadata of the file, all values strings: what it belongs to and the list of all tensors, so that
 * the files alone are enough to rebuild a lost manifest. */
static void add_file_metadata(struct buf *out, const struct ckpt_meta *meta, int rank,
                              const struct ckpt_entry *tensors, int ntensors)
{
    struct buf text = BUF_INIT;

    buf_addf(out, "\"format\":\"ds-launch fragments 1\",\"rank\":\"%d\",\"meta\":", rank);
    buf_addc(&text, '{');
    add_meta(&text, meta);
    text.data[text.len - 1] = '}';
    add_string(out, text.data);
    buf_reset(&text);
    for (int i = 0; i < ntensors; i++) {
        buf_addf(&text, "%s%s|%s ", i ? "\n" : "", tensors[i].name, tensors[i].kind);
        add_shape(&text, tensors[i].shape, tensors[i].ndim, ",");
    }
    buf_adds(out, ",\"tensors\":");
    add_string(out, buf_str(&text));
    buf_clear(&text);
}

static void add_key(struct buf *out, const struct ckpt_entry *e)
{
    char *key = xasprintf("%s|%s|%llu", e->name, e->kind, (unsigned long long)e->first);

    add_string(out, key);
    free(key);
}

/* "KEY":"shape 4,8 lo 0 hi 16 xxh3 0000000000000000". Returns where the digits stand. */
static size_t add_frag_metadata(struct buf *out, const struct ckpt_entry *e)
{
    size_t hex;

    buf_addc(out, ',');
    add_key(out, e);
    buf_adds(out, ":\"shape ");
    add_shape(out, e->shape, e->ndim, ",");
    buf_addf(out, " lo %llu hi %llu xxh3 ", (unsigned long long)e->first,
             (unsigned long long)(e->first + e->count));
    hex = out->len;
    buf_adds(out, "0000000000000000\"");
    return hex;
}

/* "KEY":{"dtype":"F32","shape":[..],"data_offsets":[a,b]}. A whole tensor has its shape, a part is
 * flat. */
static void add_frag_tensor(struct buf *out, const struct ckpt_entry *e, uint64_t at)
{
    uint64_t total = 0, bytes = e->count * sizeof(float);

    shape_total(e->shape, e->ndim, &total);
    buf_addc(out, ',');
    add_key(out, e);
    buf_adds(out, ":{\"dtype\":\"F32\",\"shape\":[");
    if (e->count == total)
        add_shape(out, e->shape, e->ndim, ",");
    else
        add_shape(out, &e->count, 1, ",");
    buf_addf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
             (unsigned long long)(at + bytes));
}

/* The header's text behind its length word, padded; sizes and digit places go into im. */
static void build_header(struct image *im, struct buf *out, const struct ckpt_meta *meta, int rank,
                         const struct ckpt_entry *entries, int n, const struct ckpt_entry *tensors,
                         int ntensors)
{
    uint64_t at = 0;

    buf_add(out, "\0\0\0\0\0\0\0\0", 8); /* the length word, filled in below */
    buf_adds(out, "{\"__metadata__\":{");
    add_file_metadata(out, meta, rank, tensors, ntensors);
    for (int i = 0; i < n; i++) {
        if (!entries[i].count)
            continue;
        ARRAY_GROW(im->frag, im->nfrags, im->frag_cap);
        im->frag[im->nfrags++].hex = add_frag_metadata(out, &entries[i]);
    }
    buf_addc(out, '}');
    for (int i = 0; i < n; i++) {
        if (!entries[i].count)
            continue;
        add_frag_tensor(out, &entries[i], at);
        at += entries[i].count * sizeof(float);
    }
    buf_addc(out, '}');
    while (out->len % CKPT_ALIGN)
        buf_addc(out, ' ');
    for (int i = 0; i < 8; i++)
        out->data[i] = (char)((out->len - 8) >> (8 * i));
    im->header_bytes = out->len;
    im->bytes = out->len + at;
}

void image_build(struct image *im, const struct ckpt_meta *meta, int rank,
                 const struct ckpt_entry *entries, int n, const struct ckpt_entry *tensors,
                 int ntensors)
{
    struct buf header = BUF_INIT;
    size_t at;
    int f = 0;

    im->nfrags = 0;
    build_header(im, &header, meta, rank, entries, n, tensors, ntensors);
    if (im->cap < im->bytes) {
        free(im->data);
        im->cap = im->bytes + im->bytes / 64 + 4096;
        im->data = xmalloc(im->cap);
    }
    memcpy(im->data, header.data, header.len);
    at = header.len;
    for (int i = 0; i < n; i++) {
        size_t bytes = entries[i].count * sizeof(float);

        if (!bytes)
            continue;
        memcpy(im->data + at, entries[i].data, bytes);
        im->frag[f].at = at;
        im->frag[f++].bytes = bytes;
        at += bytes;
    }
    buf_clear(&header);
}

void image_seal(struct image *im)
{
    for (int i = 0; i < im->nfrags; i++) {
        char hex[17];

        hash_hex(hash64(im->data + im->frag[i].at, im->frag[i].bytes), hex);
        memcpy(im->data + im->frag[i].hex, hex, 16);
    }
}

void image_clear(struct image *im)
{
    free(im->data);
    free(im->frag);
    *im = (struct image){0};
}

void manifest_print_head(const struct ckpt_meta *meta, const struct ckpt_entry *tensors,
                         int ntensors, struct buf *out)
{
    buf_adds(out, "{\"format\":\"ds-launch checkpoint\",\"version\":1,\n");
    add_meta(out, meta);
    buf_adds(out, "\n\"tensors\":[");
    for (int i = 0; i < ntensors; i++) {
        buf_adds(out, i ? ",\n{\"name\":" : "\n{\"name\":");
        add_string(out, tensors[i].name);
        buf_addf(out, ",\"kind\":\"%s\",\"shape\":[", tensors[i].kind);
        add_shape(out, tensors[i].shape, tensors[i].ndim, ",");
        buf_adds(out, "]}");
    }
    buf_adds(out, "],\n");
}

void manifest_print_files(const struct ckpt_file *files, int nfiles, struct buf *out)
{
    char hex[17];

    buf_adds(out, "\"files\":[");
    for (int i = 0; i < nfiles; i++) {
        buf_adds(out, i ? ",\n{\"name\":" : "\n{\"name\":");
        add_string(out, files[i].name);
        buf_addf(out, ",\"bytes\":%llu,\"header_bytes\":%llu,\"header_xxh3\":\"%016llx\"}",
                 (unsigned long long)files[i].bytes, (unsigned long long)files[i].header_bytes,
                 (unsigned long long)files[i].header_hash);
    }
    buf_addc(out, ']');
    hash_hex(hash64(out->data, out->len), hex);
    buf_addf(out, MANIFEST_SEAL "%s\"}\n", hex);
}
