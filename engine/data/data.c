/* Samples: see data.h.
 *
 * The files of a list are one stream of tokens, cut into windows of T + 1 that share their end:
 * window w is tokens [w*T, w*T + T], so every token but the first is a target exactly once. When no
 * validation files are named, the stream's last valid_split share is the validation split; no
 * window crosses the border. A struct data is read-only after data_open, so any number of threads
 * may sample.
 */
#include "engine/data/data.h"

#include "engine/base/buf.h"
#include "engine/base/hash.h"
#include "engine/base/rng.h"
#include "engine/data/file.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One list of files as a stream. */
struct stream {
    struct data_file *file; /* owned */
    int n, cap;
    int64_t *end; /* [n] stream index behind each file; owned */
    int64_t tokens;
};

/* A split is a part of a stream. */
struct part {
    const struct stream *stream;
    int64_t first, tokens;
};

struct data {
    struct stream train, valid;
    struct part part[2];
    int64_t seq_len, doc_token, vocab;
    uint64_t seed, hash;
    int doc_mask;
};

/* ---- files ---- */

static void stream_clear(struct stream *s)
{
    for (int i = 0; i < s->n; i++)
        data_file_close(&s->file[i]);
    free(s->file);
    free(s->end);
    *s = (struct stream){0};
}

/* Text is bytes and ids are words of some tokenizer: one stream is one of them. */
static int same_kind(const struct data_file *a, const struct data_file *b, struct err *err)
{
    if (a->width == b->width)
        return 0;
    return err_set(err, ERR_INPUT_FILE,
                   "%s holds %s and %s holds %s; use files of one kind in [data]", a->path,
                   a->width == 1   ? "text"
                   : a->width == 2 ? "16-bit tokens"
                                   : "32-bit tokens",
                   b->path,
                   b->width == 1   ? "text"
                   : b->width == 2 ? "16-bit tokens"
                                   : "32-bit tokens");
}

static int add_file(struct stream *s, const char *path, enum data_kind kind, struct err *err)
{
    ARRAY_GROW(s->file, s->n, s->cap);
    if (data_file_open(&s->file[s->n], path, kind, err))
        return -1;
    s->n++;
    return same_kind(&s->file[0], &s->file[s->n - 1], err);
}

static int path_cmp(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* One entry of the list: a path, or a pattern, whose files come in byte order of their names. */
static int add_entry(struct stream *s, const char *entry, const char *key, enum data_kind kind,
                     struct err *err)
{
    glob_t g = {0};
    int rc;

    if (!strpbrk(entry, "*?[") || access(entry, F_OK) == 0)
        return add_file(s, entry, kind, err);
    rc = glob(entry, GLOB_NOSORT | GLOB_ERR, NULL, &g);
    if (rc == GLOB_NOMATCH || (rc == 0 && g.gl_pathc == 0) ||
        (rc == GLOB_ABORTED && (errno == ENOENT || errno == ENOTDIR)))
        rc = err_set(err, ERR_INPUT_FILE,
                     "[data] %s: no file matches %s; check the pattern and the "
                     "working folder",
                     key, entry);
    else if (rc)
        rc = err_set(err, ERR_INPUT_FILE,
                     "[data] %s: cannot read the folder of %s; check its "
                     "permissions",
                     key, entry);
    if (rc == 0)
        qsort(g.gl_pathv, g.gl_pathc, sizeof *g.gl_pathv, path_cmp);
    for (size_t i = 0; rc == 0 && i < g.gl_pathc; i++)
        rc = add_file(s, g.gl_pathv[i], kind, err);
    globfree(&g);
    return rc;
}

static int add_list(struct stream *s, const char *list, const char *key, enum data_kind kind,
                    struct err *err)
{
    char *copy = xstrdup(list ? list : ""), *save = NULL;
    int rc = 0;

    for (char *w = strtok_r(copy, ",", &save); w && rc == 0; w = strtok_r(NULL, ",", &save)) {
        char *end = w + strlen(w);

        while (isspace((unsigned char)*w))
            w++;
        while (end > w && isspace((unsigned char)end[-1]))
            *--end = 0;
        if (*w)
            rc = add_entry(s, w, key, kind, err);
    }
    free(copy);
    if (rc == 0 && s->n == 0)
        rc = err_set(err, ERR_INPUT, "[data] %s names no file; write %s = FILE, ...", key, key);
    if (rc)
        return -1;
    s->end = xcalloc((size_t)s->n, sizeof *s->end);
    for (int i = 0; i < s->n; i++)
        s->end[i] = s->tokens += s->file[i].tokens;
    return 0;
}

/* ---- checks ---- */

struct max_of {
    const struct data_file *f;
    int64_t max, where;
};

static void find_max(void *ctx)
{
    struct max_of *m = ctx;

    m->max = m->f->width == 1 ? 255 : data_file_max(m->f, &m->where);
}

/* Text needs the whole byte range whatever stands in it: a model must read any prompt. */
static int check_ids(struct data *d, const struct stream *s, int64_t vocab, struct err *err)
{
    for (int i = 0; i < s->n; i++) {
        const struct data_file *f = &s->file[i];
        struct max_of m = {.f = f};
        int64_t where, max;

        if (data_files_read(f, 1, find_max, &m, err))
            return -1;
        where = m.where;
        max = m.max;
        if (max + 1 > d->vocab)
            d->vocab = max + 1;
        if (vocab && max >= vocab && f->width == 1)
            return err_set(err, ERR_INPUT,
                           "the model's vocabulary of %lld is too small for text, "
                           "which needs 256; set [model] vocab_size = 256",
                           (long long)vocab);
        if (vocab && max >= vocab)
            return err_set(
                err, ERR_INPUT_FILE,
                "%s: token %lld has id %lld and the model's vocabulary ends at %lld; use "
                "the data made for this tokenizer, or raise [model] vocab_size",
                f->path, (long long)where, (long long)max, (long long)vocab - 1);
        if (max > INT32_MAX)
            return err_set(err, ERR_INPUT_FILE,
                           "%s: token %lld has id %lld, which no model has; make "
                           "the file anew",
                           f->path, (long long)where, (long long)max);
    }
    return 0;
}

static int check_length(const struct data *d, enum data_split split, int own_files, struct err *err)
{
    const struct part *p = &d->part[split];

    if (data_samples(d, split) > 0)
        return 0;
    if (split == DATA_TRAIN)
        return err_set(
            err, ERR_INPUT_FILE,
            "[data] train has %lld tokens and one sample of seq_len = %lld needs %lld; use "
            "more text or a shorter seq_len",
            (long long)p->tokens, (long long)d->seq_len, (long long)d->seq_len + 1);
    return err_set(
        err, ERR_INPUT_FILE,
        "[data] %s %lld tokens for validation and one sample of seq_len = %lld needs %lld; "
        "use more text or a shorter seq_len%s",
        own_files ? "valid has" : "valid_split leaves", (long long)p->tokens, (long long)d->seq_len,
        (long long)d->seq_len + 1, own_files ? "" : ", or set valid_split = 0 for none");
}

enum { PIECES = 16, PIECE_BYTES = 4096 };

struct content {
    struct hash_state *h;
    const struct data_file *f;
};

/* A file's content: all of a small one, else pieces from its first byte to its last, since every
 * rank does this at every start. */
static void hash_content(void *ctx)
{
    const struct content *c = ctx;
    const struct data_file *f = c->f;
    struct hash_state *h = c->h;
    const char *p = f->map;

    if (f->map_bytes <= PIECES * PIECE_BYTES) {
        hash_update(h, p, f->map_bytes);
        return;
    }
    for (size_t i = 0; i < PIECES; i++)
        hash_update(h, p + (f->map_bytes - PIECE_BYTES) / (PIECES - 1) * i, PIECE_BYTES);
    hash_update(h, p + f->map_bytes - PIECE_BYTES, PIECE_BYTES);
}

static int hash_stream(struct hash_state *h, const struct stream *s, const char *role,
                       struct err *err)
{
    for (int i = 0; i < s->n; i++) {
        const struct data_file *f = &s->file[i];
        const char *slash = strrchr(f->path, '/');
        struct buf b = BUF_INIT;

        buf_addf(&b, "%s %s %zu %d\n", role, slash ? slash + 1 : f->path, f->map_bytes, f->width);
        hash_update(h, b.data, b.len);
        buf_clear(&b);
        if (data_files_read(f, 1, hash_content, &(struct content){h, f}, err))
            return -1;
    }
    return 0;
}

static int hash_data(struct data *d, struct err *err)
{
    struct hash_state *h = hash_create();
    int rc = hash_stream(h, &d->train, "train", err);

    if (rc == 0)
        rc = hash_stream(h, &d->valid, "valid", err);
    d->hash = hash_value(h);
    hash_destroy(h);
    return rc;
}

/* ---- opening ---- */

static int has_words(const char *s)
{
    return s && s[strspn(s, " \t,")] != 0;
}

static void split_parts(struct data *d, const struct job *job, int own_valid)
{
    int64_t n = d->train.tokens;
    int64_t valid = own_valid ? 0 : (int64_t)((double)n * job->valid_split);

    d->part[DATA_TRAIN] = (struct part){&d->train, 0, n - valid};
    if (own_valid)
        d->part[DATA_VALID] = (struct part){&d->valid, 0, d->valid.tokens};
    else
        d->part[DATA_VALID] = (struct part){&d->train, n - valid, valid};
}

/* A mask of documents where nothing begins one would mask nothing. */
static int check_documents(const struct data *d, struct err *err)
{
    const struct stream *s = &d->train;

    if (d->doc_token >= d->vocab)
        return err_set(err, ERR_INPUT, "[data] doc_token is %lld, and the ids of tokens end at %lld",
                       (long long)d->doc_token, (long long)d->vocab - 1);
    if (d->doc_mask && d->doc_token < 0 && (s->file[0].kind != DATA_TEXT || s->n == 1))
        return err_set(err, ERR_INPUT,
                       "[data] doc_mask is on, and nothing says where a document begins: %s; give the id that begins "
                       "one as doc_token, or take doc_mask out",
                       s->file[0].kind == DATA_TEXT ? "the training data is one text"
                                                    : "token files have no marks of their own");
    return 0;
}

static int open_all(struct data *d, const struct job *job, int64_t vocab, struct err *err)
{
    int own_valid = has_words(job->valid);
    enum data_kind kind = (enum data_kind)job->data_kind;

    if (job->seq_len < 1 || job->seq_len >= INT32_MAX)
        return err_set(err, ERR_INPUT, "[data] seq_len is %lld; give at least 1",
                       (long long)job->seq_len);
    if (!(job->valid_split >= 0 && job->valid_split < 1))
        return err_set(err, ERR_INPUT, "[data] valid_split is %g; give a share from 0 up to 1",
                       job->valid_split);
    if (add_list(&d->train, job->train, "train", kind, err) ||
        (own_valid && (add_list(&d->valid, job->valid, "valid", kind, err) ||
                       same_kind(&d->train.file[0], &d->valid.file[0], err))))
        return -1;
    d->seq_len = job->seq_len;
    d->doc_mask = job->doc_mask;
    d->doc_token = job->doc_token;
    d->seed = (uint64_t)job->seed;
    split_parts(d, job, own_valid);
    if (check_length(d, DATA_TRAIN, 1, err) ||
        ((own_valid || job->valid_split > 0) && check_length(d, DATA_VALID, own_valid, err)) ||
        check_ids(d, &d->train, vocab, err) || check_ids(d, &d->valid, vocab, err) || check_documents(d, err))
        return -1;
    return hash_data(d, err);
}

int data_open(struct data **out, const struct job *job, int64_t vocab, struct err *err)
{
    struct data *d = xcalloc(1, sizeof *d);

    if (open_all(d, job, vocab, err)) {
        data_close(d);
        return -1;
    }
    *out = d;
    return 0;
}

void data_close(struct data *d)
{
    if (!d)
        return;
    stream_clear(&d->train);
    stream_clear(&d->valid);
    free(d);
}

int64_t data_vocab(const struct data *d)
{
    return d->vocab;
}

int64_t data_tokens(const struct data *d, enum data_split split)
{
    return d->part[split].tokens;
}

int64_t data_samples(const struct data *d, enum data_split split)
{
    int64_t n = d->part[split].tokens;

    return n > 0 ? (n - 1) / d->seq_len : 0;
}

uint64_t data_hash(const struct data *d)
{
    return d->hash;
}

/* ---- samples ---- */

/* A place in a stream. */
struct cursor {
    const struct stream *s;
    int file;
    int64_t at; /* within the file */
};

static struct cursor cursor_at(const struct stream *s, int64_t i)
{
    int lo = 0, hi = s->n - 1;

    while (lo < hi) {
        int mid = (lo + hi) / 2;

        if (i < s->end[mid])
            hi = mid;
        else
            lo = mid + 1;
    }
    return (struct cursor){s, lo, i - (lo ? s->end[lo - 1] : 0)};
}

/* The next token; *begins when it is the first of a document: of a text file, or a doc_token. */
static int32_t next_token(const struct data *d, struct cursor *c, int *begins)
{
    const struct data_file *f;
    uint32_t id;

    if (c->at == c->s->file[c->file].tokens) {
        c->file++;
        c->at = 0;
    }
    f = &c->s->file[c->file];
    id = data_file_token(f, c->at);
    *begins = (f->kind == DATA_TEXT && c->at == 0) || (int64_t)id == d->doc_token;
    c->at++;
    return (int32_t)id;
}

/* A window and where it goes, as an argument of data_files_read. */
struct window {
    const struct data *d;
    const struct part *p;
    int64_t at;
    int32_t *token, *target, *pos, *doc;
};

static void fill(void *ctx)
{
    const struct window *w = ctx;
    const struct data *d = w->d;
    int32_t *token = w->token, *target = w->target, *pos = w->pos, *doc = w->doc;
    int64_t T = d->seq_len;
    struct cursor c = cursor_at(w->p->stream, w->p->first + w->at * T);
    int32_t start = 0;

    for (int64_t i = 0; i <= T; i++) {
        int begins;
        int32_t id = next_token(d, &c, &begins);

        begins = begins && d->doc_mask;
        if (i)
            target[i - 1] = begins ? -1 : id;
        if (i == T)
            break;
        if (begins)
            start = (int32_t)i;
        token[i] = id;
        pos[i] = (int32_t)i - start;
        doc[i] = start;
    }
}

int data_sample(const struct data *d, enum data_split split, uint64_t p, int32_t *token,
                int32_t *target, int32_t *pos, int32_t *doc, struct err *err)
{
    uint64_t n = (uint64_t)data_samples(d, split);
    struct window w = {d, &d->part[split], (int64_t)p, token, target, pos, doc};

    if (n == 0 || (split == DATA_VALID && p >= n))
        return err_set(err, ERR_JOB_INTERNAL,
                       "sample %llu of %llu in the %s split was asked for; this "
                       "is a bug",
                       (unsigned long long)p, (unsigned long long)n,
                       split == DATA_TRAIN ? "training" : "validation");
    if (split == DATA_TRAIN)
        w.at = (int64_t)rng_permute(d->seed, p / n, p % n, n);
    return data_files_read(w.p->stream->file, w.p->stream->n, fill, &w, err);
}
