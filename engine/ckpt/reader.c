/* Reading a checkpoint on any number of ranks: see ckpt.h.
 *
 * ckpt_open reads the manifest and every file's header, and checks that they fit each other and
 * that the fragments cover every tensor. Data is read by ckpt_read, only where it is wanted.
 * Invariant: have[] is sorted; have[i].holder indexes place[]; names in have point into header[].
 */
#include "engine/base/hash.h"
#include "engine/ckpt/ckpt.h"
#include "engine/ckpt/files.h"
#include "engine/ckpt/format.h"
#include "engine/ckpt/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST_MAX (256u << 20)
#define OPEN_MAX_FILES 128
#define HASH_BYTES (1u << 20) /* of a fragment hashed at a time */

void ckpt_meta_clear(struct ckpt_meta *m)
{
    free(m->config);
    m->config = NULL;
}

/* ---- one file ---- */

/* Exactly n bytes from at. */
static int read_at(int fd, void *to, uint64_t n, uint64_t at, const char *path, struct err *err)
{
    char *p = to;

    while (n) {
        ssize_t done = pread(fd, p, n < (1u << 30) ? n : 1u << 30, (off_t)at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return err_set(err, ERR_INPUT_FILE, "%s cannot be read: %m", path);
        if (done == 0)
            return err_set(err, ERR_INPUT_FILE,
                           "%s ends at byte %llu, in the middle of its data; it was cut short",
                           path, (unsigned long long)at);
        p += done;
        at += (uint64_t)done;
        n -= (uint64_t)done;
    }
    return 0;
}

static int check_size(int fd, const char *path, uint64_t want, uint64_t *bytes, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_set(err, ERR_INPUT_FILE, "%s cannot be read: %m", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INPUT_FILE, "%s is not a file", path);
    *bytes = (uint64_t)st.st_size;
    if (want && *bytes != want)
        return err_set(err, ERR_INPUT_FILE,
                       "%s has %llu bytes where the manifest says %llu; it was cut short or "
                       "replaced",
                       path, (unsigned long long)*bytes, (unsigned long long)want);
    return 0;
}

/* want: what the manifest says of the file; NULL: any safetensors file. */
static int read_header(int fd, const char *path, const struct ckpt_file *want, struct st_header *h,
                       struct err *err)
{
    uint8_t word[8];
    uint64_t bytes = 0, n = 0;
    char *text;
    int rc;

    if (check_size(fd, path, want ? want->bytes : 0, &bytes, err) < 0)
        return -1;
    if (bytes < 8)
        return err_set(err, ERR_INPUT_FILE, "%s has only %llu bytes: it is not a safetensors file",
                       path, (unsigned long long)bytes);
    if (read_at(fd, word, 8, 0, path, err) < 0)
        return -1;
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)word[i] << (8 * i);
    if (n > CKPT_HEADER_MAX || n > bytes - 8 || (want && n + 8 != want->header_bytes))
        return err_set(err, ERR_INPUT_FILE,
                       "%s: the header's length, %llu, is wrong; the file is damaged or not a "
                       "safetensors file",
                       path, (unsigned long long)n);
    text = xmalloc(n + 8);
    memcpy(text, word, 8);
    rc = read_at(fd, text + 8, n, 8, path, err);
    if (rc == 0 && want && hash64(text, n + 8) != want->header_hash)
        rc = err_set(err, ERR_INPUT_FILE,
                     "%s: the header is not the one the manifest knows; the file is damaged or "
                     "belongs to another checkpoint",
                     path);
    if (rc == 0)
        rc = st_header_parse(h, path, text + 8, n, bytes, want != NULL, err);
    free(text);
    return rc;
}

int st_header_read(struct st_header *h, const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

    *h = (struct st_header){0};
    if (fd < 0)
        return err_set(err, ERR_INPUT_FILE, "%s cannot be opened: %m", path);
    rc = read_header(fd, path, NULL, h, err);
    close(fd);
    return rc;
}

/* ---- open ---- */

static char *file_path(const struct ckpt *c, int i)
{
    return xasprintf("%s/%s", c->path, c->m.file[i].name);
}

static int read_manifest(struct ckpt *c, struct err *err)
{
    char *path = xasprintf("%s/manifest.json", c->path);
    struct buf text = BUF_INIT;
    int rc = file_read(path, MANIFEST_MAX, &text, err);

    if (rc == 0)
        rc = manifest_parse(&c->m, path, buf_str(&text), text.len, err);
    buf_clear(&text);
    free(path);
    return rc;
}

static int read_headers(struct ckpt *c, struct err *err)
{
    c->header = xcalloc((size_t)c->m.nfiles + 1, sizeof *c->header);
    for (int i = 0; i < c->m.nfiles; i++) {
        char *path = file_path(c, i);
        int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

        if (fd < 0)
            rc = err_set(err, ERR_INPUT_FILE, "%s cannot be opened: %m", path);
        else
            rc = read_header(fd, path, &c->m.file[i], &c->header[i], err);
        if (fd >= 0)
            close(fd);
        free(path);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static struct frag *whole_tensors(const struct ckpt *c)
{
    struct frag *f = xcalloc((size_t)c->m.ntensors + 1, sizeof *f);

    for (int i = 0; i < c->m.ntensors; i++)
        f[i] = (struct frag){c->m.tensor[i].name,
                             c->m.tensor[i].kind,
                             c->m.tensor[i].count,
                             0,
                             c->m.tensor[i].count,
                             0,
                             i};
    frag_sort(f, c->m.ntensors);
    return f;
}

static int same_shape(const uint64_t *a, int na, const uint64_t *b, int nb)
{
    return na == nb && memcmp(a, b, (size_t)na * sizeof *a) == 0;
}

static int tensor_order(const void *x, const void *y)
{
    const struct frag *a = x, *b = y;
    int order = strcmp(a->name, b->name);

    return order ? order : strcmp(a->kind, b->kind);
}

/* The fragments of all files; each must belong to a tensor of the manifest and have its shape. */
static int list_frags(struct ckpt *c, const struct frag *tensors, struct err *err)
{
    int n = 0;

    for (int i = 0; i < c->m.nfiles; i++)
        n += c->header[i].n;
    c->have = xcalloc((size_t)n + 1, sizeof *c->have);
    c->place = xcalloc((size_t)n + 1, sizeof *c->place);
    for (int i = 0; i < c->m.nfiles; i++) {
        for (int k = 0; k < c->header[i].n; k++) {
            const struct st_entry *e = &c->header[i].entry[k];
            struct frag f = {e->name, e->kind, e->total, e->first, e->count, e->hash, c->nhave};
            const struct frag *t =
                bsearch(&f, tensors, (size_t)c->m.ntensors, sizeof f, tensor_order);

            if (!t || !same_shape(c->m.tensor[t->holder].shape, c->m.tensor[t->holder].ndim,
                                  e->gshape, e->gdim))
                return err_set(err, ERR_INPUT_FILE,
                               "%s/%s: %s is not a tensor of this checkpoint, or has another "
                               "shape there",
                               c->path, c->m.file[i].name, e->key);
            c->place[c->nhave] = (struct place){i, c->header[i].data_at + e->at, e->key};
            c->have[c->nhave++] = f;
        }
    }
    frag_sort(c->have, c->nhave);
    return 0;
}

int ckpt_open_step(struct ckpt **out, const char *path, struct err *err)
{
    struct ckpt *c = xcalloc(1, sizeof *c);
    struct frag *tensors = NULL;
    int rc;

    c->path = xstrdup(path);
    rc = read_manifest(c, err);
    if (rc == 0)
        rc = read_headers(c, err);
    if (rc == 0) {
        tensors = whole_tensors(c);
        rc = list_frags(c, tensors, err);
    }
    if (rc == 0 && frag_cover(c->have, c->nhave, tensors, c->m.ntensors, err) < 0)
        rc = err_prefix(err, "the checkpoint %s is not whole", path);
    free(tensors);
    if (rc < 0) {
        ckpt_close(c);
        c = NULL;
    }
    *out = c;
    return rc;
}

void ckpt_close(struct ckpt *c)
{
    if (!c)
        return;
    for (int i = 0; c->header && i < c->m.nfiles; i++)
        st_header_clear(&c->header[i]);
    free(c->header);
    free(c->have);
    free(c->place);
    manifest_clear(&c->m);
    free(c->path);
    free(c->passed_over);
    free(c);
}

const struct ckpt_meta *ckpt_meta(const struct ckpt *c)
{
    return &c->m.meta;
}

const char *ckpt_path(const struct ckpt *c)
{
    return c->path;
}

uint64_t ckpt_seal(const struct ckpt *c)
{
    return c->m.seal;
}

int ckpt_tensors(const struct ckpt *c, const struct ckpt_entry **list)
{
    *list = c->m.tensor;
    return c->m.ntensors;
}

/* ---- read ---- */

/* Files stay open from one move to the next, up to a bound. */
struct fds {
    int *fd;
    int open;
    unsigned char *checked; /* [fragment] its hash was right */
};

static int fd_of(struct fds *f, const struct ckpt *c, int file, struct err *err)
{
    char *path;

    if (f->fd[file] >= 0)
        return f->fd[file];
    if (f->open == OPEN_MAX_FILES) {
        for (int i = 0; i < c->m.nfiles; i++) {
            if (f->fd[i] >= 0)
                close(f->fd[i]);
            f->fd[i] = -1;
        }
        f->open = 0;
    }
    path = file_path(c, file);
    f->fd[file] = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd[file] < 0)
        err_set(err, ERR_INPUT_FILE, "%s cannot be opened: %m", path);
    else
        f->open++;
    free(path);
    return f->fd[file];
}

static int damaged(const char *path, const char *key, struct err *err)
{
    return err_set(err, ERR_INPUT_DAMAGED,
                   "%s: the data of %s is damaged (its hash differs); use another checkpoint", path,
                   key);
}

/* The bytes of a whole fragment against its hash, without keeping them. */
static int check_hash(int fd, uint64_t from, uint64_t bytes, uint64_t hash, const char *key,
                      const char *path, struct err *err)
{
    uint64_t at = 0;
    struct hash_state *h = hash_create();
    char *block = xmalloc(HASH_BYTES);
    int rc = 0;

    while (rc == 0 && at < bytes) {
        uint64_t n = bytes - at < HASH_BYTES ? bytes - at : HASH_BYTES;

        rc = read_at(fd, block, n, from + at, path, err);
        if (rc == 0)
            hash_update(h, block, n);
        at += n;
    }
    if (rc == 0 && hash_value(h) != hash)
        rc = damaged(path, key, err);
    hash_destroy(h);
    free(block);
    return rc;
}

/* Elements [off, off + count) of fragment i into data. Nothing is handed out whose fragment was not
 * held against its hash, once in a call. */
static int read_frag(struct ckpt *c, struct fds *fds, int i, uint64_t off, uint64_t count,
                     float *data, struct err *err)
{
    const struct frag *f = &c->have[i];
    const struct place *p = &c->place[f->holder];
    int fd = fd_of(fds, c, p->file, err), rc = 0;
    char *path;

    if (fd < 0)
        return -1;
    path = file_path(c, p->file);
    if (count != f->count && !fds->checked[i])
        rc = check_hash(fd, p->at, f->count * sizeof(float), f->hash, p->key, path, err);
    if (rc == 0)
        rc = read_at(fd, data, count * sizeof(float), p->at + off * sizeof(float), path, err);
    if (rc == 0 && count == f->count && hash64(data, count * sizeof(float)) != f->hash)
        rc = damaged(path, p->key, err);
    fds->checked[i] |= rc == 0;
    free(path);
    return rc;
}

static void fds_open(struct fds *f, const struct ckpt *c)
{
    f->fd = xcalloc((size_t)c->m.nfiles + 1, sizeof *f->fd);
    f->open = 0;
    f->checked = xcalloc((size_t)c->nhave + 1, 1);
    for (int i = 0; i < c->m.nfiles; i++)
        f->fd[i] = -1;
}

static void fds_close(struct fds *f, const struct ckpt *c)
{
    for (int i = 0; i < c->m.nfiles; i++)
        if (f->fd[i] >= 0)
            close(f->fd[i]);
    free(f->fd);
    free(f->checked);
}

/* The entry's tensor is in the checkpoint with this shape. */
static int check_entry(const struct ckpt *c, const struct ckpt_entry *e, const struct frag *tensors,
                       struct err *err)
{
    struct frag key = {.name = e->name, .kind = e->kind};
    const struct frag *t = bsearch(&key, tensors, (size_t)c->m.ntensors, sizeof key, tensor_order);
    const struct ckpt_entry *there;
    struct buf text = BUF_INIT;

    if (!t)
        return err_set(err, ERR_INPUT,
                       "checkpoint %s has no tensor %s|%s; it belongs to another model", c->path,
                       e->name, e->kind);
    there = &c->m.tensor[t->holder];
    if (same_shape(there->shape, there->ndim, e->shape, e->ndim))
        return 0;
    for (int i = 0; i < there->ndim; i++)
        buf_addf(&text, "%s%llu", i ? "x" : "", (unsigned long long)there->shape[i]);
    buf_adds(&text, " in the checkpoint and ");
    for (int i = 0; i < e->ndim; i++)
        buf_addf(&text, "%s%llu", i ? "x" : "", (unsigned long long)e->shape[i]);
    err_set(err, ERR_INPUT, "checkpoint %s: tensor %s|%s is %s here; the models differ", c->path,
            e->name, e->kind, buf_str(&text));
    buf_clear(&text);
    return -1;
}

/* entries as sorted ranges, holder = index among the entries. */
static int list_wanted(const struct ckpt *c, const struct ckpt_entry *entries, int n,
                       struct frag *want, struct err *err)
{
    struct frag *tensors = whole_tensors(c);
    int rc = 0;

    for (int i = 0; i < n && rc == 0; i++) {
        uint64_t total = 0;

        rc = check_entry(c, &entries[i], tensors, err);
        shape_total(entries[i].shape, entries[i].ndim, &total);
        want[i] = (struct frag){
            entries[i].name, entries[i].kind, total, entries[i].first, entries[i].count, 0, i};
    }
    free(tensors);
    frag_sort(want, rc == 0 ? n : 0);
    return rc;
}

int ckpt_read(struct ckpt *c, struct ckpt_entry *entries, int n, struct err *err)
{
    struct frag *want = xcalloc((size_t)n + 1, sizeof *want);
    struct frag_move *moves = NULL;
    int nmoves = 0, rc = list_wanted(c, entries, n, want, err);
    struct fds fds;

    if (rc == 0 && frag_plan_moves(c->have, c->nhave, want, n, &moves, &nmoves, err) < 0)
        rc = err_prefix(err, "checkpoint %s", c->path);
    fds_open(&fds, c);
    for (int i = 0; i < nmoves && rc == 0; i++) {
        float *data = entries[want[moves[i].to].holder].data + moves[i].to_off;

        rc = read_frag(c, &fds, moves[i].from, moves[i].from_off, moves[i].count, data, err);
    }
    fds_close(&fds, c);
    free(moves);
    free(want);
    return rc;
}

int ckpt_verify(struct ckpt *c, uint64_t *bytes, struct err *err)
{
    struct fds fds;
    int rc = 0;

    *bytes = 0;
    fds_open(&fds, c);
    for (int i = 0; i < c->nhave && rc == 0; i++) {
        float *data = xmalloc(c->have[i].count * sizeof(float));

        rc = read_frag(c, &fds, i, 0, c->have[i].count, data, err);
        *bytes += c->have[i].count * sizeof(float);
        free(data);
    }
    fds_close(&fds, c);
    return rc;
}

int st_verify(const struct st_header *h, const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;

    if (fd < 0)
        return err_set(err, ERR_INPUT_FILE, "%s cannot be opened: %m", path);
    for (int i = 0; i < h->n && h->ours && rc == 0; i++)
        rc = check_hash(fd, h->data_at + h->entry[i].at, h->entry[i].bytes, h->entry[i].hash,
                        h->entry[i].key, path, err);
    close(fd);
    return rc;
}
