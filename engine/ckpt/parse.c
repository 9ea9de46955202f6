/* Headers and manifests from bytes that nobody vouches for: see format.h. Invariant: nothing is
 * taken over that was not checked against its bounds. */
#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/base/parse.h"
#include "engine/ckpt/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int bad(struct err *err, const char *name, const char *what, const char *key)
{
    return err_set(err, ERR_INPUT_FILE, "%s: %s%s%s; the file is damaged or of another kind", name,
                   what, key ? " at " : "", key ? key : "");
}

/* Takes a JSON integer >= 0. */
static int take_u64(const struct jv *v, uint64_t *out)
{
    if (jv_type(v) != JV_INT || jv_int(v) < 0)
        return -1;
    *out = (uint64_t)jv_int(v);
    return 0;
}

static int parse_u64(const char *s, size_t n, uint64_t *out)
{
    char text[24];
    int64_t v;

    if (!n || n >= sizeof text)
        return -1;
    memcpy(text, s, n);
    text[n] = 0;
    if (text[0] < '0' || text[0] > '9' || parse_i64(text, 0, INT64_MAX, &v) < 0)
        return -1;
    *out = (uint64_t)v;
    return 0;
}

static int parse_hex(const char *s, uint64_t *out)
{
    if (!s || strlen(s) != 16 || strspn(s, "0123456789abcdef") != 16)
        return -1;
    *out = strtoull(s, NULL, 16);
    return 0;
}

/* ---- safetensors header ---- */

static int take_shape(const struct jv *v, uint64_t *shape, int max, int *ndim)
{
    if (jv_type(v) != JV_LIST || jv_count(v) > (size_t)max)
        return -1;
    *ndim = (int)jv_count(v);
    for (int i = 0; i < *ndim; i++)
        if (take_u64(jv_item(v, (size_t)i), &shape[i]) < 0)
            return -1;
    return 0;
}

static uint64_t dtype_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } types[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
                 {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
                 {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, dtype) == 0)
            return types[i].bytes;
    return 0;
}

/* One "KEY":{"dtype":..,"shape":[..],"data_offsets":[a,b]}; data_bytes: size of the file's data
 * part. */
static int take_entry(struct st_entry *e, const char *name, const char *key, const struct jv *v,
                      uint64_t data_bytes, struct err *err)
{
    const char *dtype = jv_text(jv_member(v, "dtype"));
    const struct jv *offsets = jv_member(v, "data_offsets");
    uint64_t end, total;

    e->key = xstrdup(key);
    if (!dtype || jv_count(offsets) != 2 || take_u64(jv_item(offsets, 0), &e->at) < 0 ||
        take_u64(jv_item(offsets, 1), &end) < 0 ||
        take_shape(jv_member(v, "shape"), e->shape, 8, &e->ndim) < 0)
        return bad(err, name, "the header has a malformed entry", key);
    e->dtype = xstrdup(dtype);
    if (!dtype_bytes(dtype))
        return err_set(err, ERR_INPUT_FILE, "%s: %s has the unknown type %.20s", name, key, dtype);
    if (e->at > end || end > data_bytes)
        return err_set(err, ERR_INPUT_FILE,
                       "%s: %s claims bytes %" PRIu64 " to %" PRIu64 " of a data part of %" PRIu64
                       "; the file is damaged or cut short",
                       name, key, e->at, end, data_bytes);
    e->bytes = end - e->at;
    if (shape_total(e->shape, e->ndim, &total) < 0 || total > e->bytes ||
        total * dtype_bytes(dtype) != e->bytes)
        return bad(err, name, "the shape does not fit the number of bytes", key);
    return 0;
}

/* "shape 4,8 lo 0 hi 16 xxh3 0123456789abcdef" */
static int take_frag_text(struct st_entry *e, const char *text)
{
    uint64_t hi;
    const char *p;
    size_t n;

    if (!text || strncmp(text, "shape ", 6) != 0)
        return -1;
    for (p = text + 6; e->gdim < 4; p += n + 1) {
        n = strcspn(p, ", ");
        if (parse_u64(p, n, &e->gshape[e->gdim++]) < 0)
            return -1;
        if (p[n] != ',')
            break;
    }
    p += strcspn(p, " ");
    if (strncmp(p, " lo ", 4) != 0)
        return -1;
    n = strcspn(p + 4, " ");
    if (parse_u64(p + 4, n, &e->first) < 0)
        return -1;
    p += 4 + n;
    if (strncmp(p, " hi ", 4) != 0)
        return -1;
    n = strcspn(p + 4, " ");
    if (parse_u64(p + 4, n, &hi) < 0 || hi < e->first)
        return -1;
    p += 4 + n;
    e->count = hi - e->first;
    return strncmp(p, " xxh3 ", 6) == 0 ? parse_hex(p + 6, &e->hash) : -1;
}

/* The key NAME|KIND|LO and the metadata of the same key. */
static int take_frag(struct st_entry *e, const char *name, const char *text, struct err *err)
{
    const char *second = strrchr(e->key, '|'), *first = second;
    uint64_t lo;

    while (first && first > e->key && *--first != '|')
        ;
    if (!second || first == e->key || *first != '|' ||
        parse_u64(second + 1, strlen(second + 1), &lo) < 0)
        return bad(err, name, "an entry is not named TENSOR|KIND|FIRST", e->key);
    if (take_frag_text(e, text) < 0)
        return bad(err, name, "the fragment's metadata is malformed", e->key);
    if (e->first != lo || shape_total(e->gshape, e->gdim, &e->total) < 0 || e->count > e->total ||
        e->first > e->total - e->count || e->count * sizeof(float) != e->bytes ||
        strcmp(e->dtype, "F32") != 0)
        return bad(err, name, "the fragment's range does not fit its tensor or its data", e->key);
    if (!e->hash)
        return bad(err, name, "the fragment has no hash: it was never finished", e->key);
    e->name = xstrndup(e->key, (size_t)(first - e->key));
    e->kind = xstrndup(first + 1, (size_t)(second - first - 1));
    return 0;
}

static int by_place(const void *x, const void *y)
{
    const struct st_entry *a = x, *b = y;

    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* The data part is covered exactly once. */
static int check_places(struct st_header *h, const char *name, uint64_t data_bytes, struct err *err)
{
    uint64_t at = 0;

    if (h->n)
        qsort(h->entry, (size_t)h->n, sizeof *h->entry, by_place);
    for (int i = 0; i < h->n; i++) {
        if (h->entry[i].at != at)
            return bad(err, name, "the data has a gap or an overlap", h->entry[i].key);
        at += h->entry[i].bytes;
    }
    if (at != data_bytes)
        return err_set(err, ERR_INPUT_FILE,
                       "%s: holds %" PRIu64 " bytes of data where its header has %" PRIu64
                       "; the file is damaged or cut short",
                       name, data_bytes, at);
    return 0;
}

static int take_header(struct st_header *h, const char *name, const struct jv *root,
                       uint64_t data_bytes, int ours, struct err *err)
{
    const struct jv *metadata = jv_member(root, "__metadata__");
    const char *format = jv_text(jv_member(metadata, "format")), *key;
    const struct jv *v;
    void *at = NULL;

    h->ours = format && strcmp(format, "ds-launch fragments 1") == 0;
    if (ours && !h->ours)
        return err_set(err, ERR_INPUT_FILE, "%s: is not a checkpoint file of ds-launch", name);
    h->entry = xcalloc(jv_count(root) + 1, sizeof *h->entry);
    while ((key = jv_next(root, &at, &v))) {
        if (strcmp(key, "__metadata__") == 0)
            continue;
        if (take_entry(&h->entry[h->n++], name, key, v, data_bytes, err) < 0)
            return -1;
        if (h->ours &&
            take_frag(&h->entry[h->n - 1], name, jv_text(jv_member(metadata, key)), err) < 0)
            return -1;
    }
    return check_places(h, name, data_bytes, err);
}

int st_header_parse(struct st_header *h, const char *name, const char *text, size_t n,
                    uint64_t file_bytes, int ours, struct err *err)
{
    struct jv *root;
    char why[200];
    int rc, line;

    *h = (struct st_header){.data_at = 8 + (uint64_t)n};
    if (n > CKPT_HEADER_MAX || file_bytes < h->data_at)
        return bad(err, name, "the header is longer than the file", NULL);
    root = jv_parse(text, n, &line, why);
    if (!root)
        return err_set(err, ERR_INPUT_FILE,
                       "%s: the header is not valid JSON (%.100s); the file is damaged or of "
                       "another kind",
                       name, why);
    rc = jv_type(root) == JV_OBJECT ? take_header(h, name, root, file_bytes - h->data_at, ours, err)
                                    : bad(err, name, "the header is no JSON object", NULL);
    jv_free(root);
    if (rc < 0)
        st_header_clear(h);
    return rc;
}

void st_header_clear(struct st_header *h)
{
    for (int i = 0; i < h->n; i++) {
        free(h->entry[i].key);
        free(h->entry[i].dtype);
        free(h->entry[i].name);
        free(h->entry[i].kind);
    }
    free(h->entry);
    *h = (struct st_header){0};
}

/* ---- manifest ---- */

struct taker {
    const char *name;
    const struct jv *root;
    struct err *err;
    int failed;
};

static void missing(struct taker *t, const char *key)
{
    if (!t->failed)
        err_set(t->err, ERR_INPUT_FILE, "%s: %s is missing or wrong; the manifest is damaged",
                t->name, key);
    t->failed = 1;
}

static int64_t take_int(struct taker *t, const char *key)
{
    const struct jv *v = jv_member(t->root, key);

    if (jv_type(v) != JV_INT)
        missing(t, key);
    return jv_int(v);
}

static double take_number(struct taker *t, const char *key)
{
    const struct jv *v = jv_member(t->root, key);

    if (jv_type(v) == JV_NULL)
        return NAN;
    if (jv_type(v) != JV_INT && jv_type(v) != JV_REAL)
        missing(t, key);
    return jv_number(v);
}

static uint64_t take_hex(struct taker *t, const char *key)
{
    uint64_t v = 0;

    if (parse_hex(jv_text(jv_member(t->root, key)), &v) < 0)
        missing(t, key);
    return v;
}

static const char *take_text(struct taker *t, const char *key)
{
    const char *s = jv_text(jv_member(t->root, key));

    if (!s)
        missing(t, key);
    return s ? s : "";
}

static void take_word(struct taker *t, const char *key, char *out, size_t n)
{
    const char *s = take_text(t, key);

    if (strlen(s) >= n)
        missing(t, key);
    else
        strcpy(out, s);
}

static void take_meta(struct taker *t, struct ckpt_meta *m)
{
    m->step = take_int(t, "step");
    m->update = take_int(t, "update");
    m->samples = take_int(t, "samples");
    m->applied = take_int(t, "applied");
    m->loss_scale = take_number(t, "loss_scale");
    m->good_steps = take_int(t, "good_steps");
    m->hysteresis = take_int(t, "hysteresis");
    m->seed = take_hex(t, "seed");
    m->data_hash = take_hex(t, "data_hash");
    m->config_hash = take_hex(t, "config_hash");
    m->world = (int)take_int(t, "world");
    m->threads = (int)take_int(t, "threads");
    take_word(t, "mesh", m->mesh, sizeof m->mesh);
    take_word(t, "isa", m->isa, sizeof m->isa);
    take_word(t, "build", m->build, sizeof m->build);
    m->loss = take_number(t, "loss");
    m->valid_loss = take_number(t, "valid_loss");
    m->config = xstrdup(take_text(t, "config"));
    if (m->step < 0 || m->update < 0 || m->samples < 0 || m->applied < 0)
        missing(t, "a counter");
}

static void take_file(struct taker *t, const struct jv *v, struct ckpt_file *f)
{
    const char *name = jv_text(jv_member(v, "name"));

    /* A plain name inside the folder, so that no manifest leads elsewhere. */
    if (!name || !*name || *name == '.' || strchr(name, '/'))
        missing(t, "a file's name");
    f->name = xstrdup(name ? name : "");
    if (take_u64(jv_member(v, "bytes"), &f->bytes) < 0 ||
        take_u64(jv_member(v, "header_bytes"), &f->header_bytes) < 0 ||
        parse_hex(jv_text(jv_member(v, "header_xxh3")), &f->header_hash) < 0 ||
        f->header_bytes < 8 || f->header_bytes > f->bytes || f->header_bytes > CKPT_HEADER_MAX)
        missing(t, "a file's size or hash");
}

static void take_tensor(struct taker *t, const struct jv *v, struct ckpt_entry *e)
{
    const char *name = jv_text(jv_member(v, "name"));
    const char *kind = jv_text(jv_member(v, "kind"));

    e->name = xstrdup(name ? name : "");
    e->kind = xstrdup(kind ? kind : "");
    if (!name || !kind || take_shape(jv_member(v, "shape"), e->shape, 4, &e->ndim) < 0 ||
        shape_total(e->shape, e->ndim, &e->count) < 0)
        missing(t, "a tensor");
}

static void take_lists(struct taker *t, struct manifest *m)
{
    const struct jv *files = jv_member(t->root, "files"), *tensors = jv_member(t->root, "tensors");

    if (jv_type(files) != JV_LIST || jv_type(tensors) != JV_LIST) {
        missing(t, "the list of files or tensors");
        return;
    }
    m->file = xcalloc(jv_count(files) + 1, sizeof *m->file);
    for (size_t i = 0; i < jv_count(files); i++)
        take_file(t, jv_item(files, i), &m->file[m->nfiles++]);
    m->tensor = xcalloc(jv_count(tensors) + 1, sizeof *m->tensor);
    for (size_t i = 0; i < jv_count(tensors); i++)
        take_tensor(t, jv_item(tensors, i), &m->tensor[m->ntensors++]);
}

/* Every byte of a manifest counts: its last field, *seal, is the hash of all before it. */
static int check_seal(const char *text, size_t n, uint64_t *seal)
{
    size_t tail = strlen(MANIFEST_SEAL) + 16 + 3;
    char hex[17];
    const char *p = text + (n < tail ? 0 : n - tail);

    if (n < tail || memcmp(p, MANIFEST_SEAL, strlen(MANIFEST_SEAL)) != 0 ||
        memcmp(text + n - 3, "\"}\n", 3) != 0)
        return -1;
    *seal = hash64(text, n - tail);
    hash_hex(*seal, hex);
    return memcmp(p + strlen(MANIFEST_SEAL), hex, 16) == 0 ? 0 : -1;
}

int manifest_parse(struct manifest *m, const char *name, const char *text, size_t n,
                   struct err *err)
{
    char why[200];
    int line;
    struct jv *root = jv_parse(text, n, &line, why);
    struct taker t = {name, root, err, 0};
    const char *format = jv_text(jv_member(root, "format"));

    *m = (struct manifest){0};
    if (!root)
        return err_set(err, ERR_INPUT_FILE,
                       "%s: is not valid JSON (line %d: %.100s); the manifest is damaged", name,
                       line, why);
    if (!format || strcmp(format, "ds-launch checkpoint") != 0 || take_int(&t, "version") != 1) {
        t.failed = 1;
        err_set(err, ERR_INPUT_FILE,
                "%s: is not a checkpoint manifest of this version of ds-launch", name);
    } else if (check_seal(text, n, &m->seal) < 0) {
        t.failed = 1;
        err_set(err, ERR_INPUT_FILE,
                "%s: its hash does not fit its text; the manifest is damaged or was edited", name);
    } else {
        take_meta(&t, &m->meta);
        take_lists(&t, m);
    }
    jv_free(root);
    if (!t.failed)
        return 0;
    manifest_clear(m);
    return -1;
}

void manifest_clear(struct manifest *m)
{
    for (int i = 0; i < m->nfiles; i++)
        free(m->file[i].name);
    for (int i = 0; i < m->ntensors; i++) {
        free((char *)m->tensor[i].name);
        free((char *)m->tensor[i].kind);
    }
    free(m->file);
    free(m->tensor);
    ckpt_meta_clear(&m->meta);
    *m = (struct manifest){0};
}
