/* ds-rank data: text files into llm.c token files.
 *
 * The tokens are the bytes of the files, as 16-bit ids, in the order given; with --doc-token each
 * file begins with that id. A shard is written under a temporary name in its own folder, synced and
 * renamed, so a file of the final name is always whole. This is a program: it prints.
 */
#include "engine/data/data.h"

#include "engine/base/buf.h"
#include "engine/base/fault.h"
#include "engine/base/log.h"
#include "engine/base/parse.h"
#include "engine/data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 18 }; /* ids converted at a time */

struct options {
    const char *out;
    int64_t shard_tokens; /* 0: one file */
    int64_t doc_token;    /* -1: none */
    int force;
};

/* What is being written. */
struct writer {
    const struct options *opt;
    char *path, *temp; /* of the open shard; owned; NULL: none open */
    int fd;
    int shard;      /* number of the open or next shard */
    int64_t tokens; /* in the open shard */
    int64_t total;
    uint16_t *id; /* [CHUNK] not yet written; owned */
    int n;
};

/* ---- one shard ---- */

static char *shard_path(const struct options *opt, int shard)
{
    size_t n = strlen(opt->out);

    if (!opt->shard_tokens)
        return xstrdup(opt->out);
    if (n > 4 && strcmp(opt->out + n - 4, ".bin") == 0)
        n -= 4;
    return xasprintf("%.*s_%06d.bin", (int)n, opt->out, shard);
}

static int fail_io(const struct writer *w, const char *what, struct err *err)
{
    return err_set(err, ERR_JOB_IO, "cannot %s %s: %m; nothing is left of it", what, w->path);
}

static int write_all(struct writer *w, const void *data, size_t n, int64_t at, struct err *err)
{
    const char *p = data;

    while (n) {
        int fault = 0;
        ssize_t k = fault_hit("write", &fault) ? -1 : pwrite(w->fd, p, n, at);

        if (k < 0 && fault)
            errno = fault;
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return fail_io(w, "write", err);
        p += k;
        n -= (size_t)k;
        at += k;
    }
    return 0;
}

static int flush_ids(struct writer *w, struct err *err)
{
    int64_t at = BIN_HEADER_BYTES + 2 * w->tokens;

    if (write_all(w, w->id, 2 * (size_t)w->n, at, err))
        return -1;
    w->tokens += w->n;
    w->n = 0;
    return 0;
}

static int open_shard(struct writer *w, struct err *err)
{
    w->path = shard_path(w->opt, w->shard);
    w->temp = xasprintf("%s.tmp-%ld", w->path, (long)getpid());
    w->tokens = 0;
    w->fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return w->fd < 0 ? fail_io(w, "create", err) : 0;
}

/* The rename is on disk only when its folder is. */
static int sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? xstrndup(path, (size_t)(slash - path) + 1) : xstrdup(".");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

    free(dir);
    if (fd < 0)
        return -1;
    rc = fsync(fd);
    close(fd);
    return rc;
}

static int sync_shard(struct writer *w, struct err *err)
{
    uint8_t head[BIN_HEADER_BYTES];
    int fault = 0, rc;

    if (flush_ids(w, err))
        return -1;
    bin_header_write(head, 2, w->tokens);
    if (write_all(w, head, sizeof head, 0, err))
        return -1;
    rc = fault_hit("fsync", &fault) ? (errno = fault, -1) : fsync(w->fd);
    if (rc)
        return fail_io(w, "sync", err);
    rc = close(w->fd);
    w->fd = -1;
    if (rc)
        return fail_io(w, "close", err);
    rc = fault_hit("rename", &fault) ? (errno = fault, -1) : rename(w->temp, w->path);
    if (rc || sync_folder(w->path))
        return fail_io(w, "rename", err);
    return 0;
}

static void drop_shard(struct writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    if (w->temp)
        unlink(w->temp);
    free(w->path);
    free(w->temp);
    w->path = w->temp = NULL;
    w->fd = -1;
}

static int close_shard(struct writer *w, struct err *err)
{
    int rc = sync_shard(w, err);

    if (rc == 0) {
        printf("%s: %lld tokens\n", w->path, (long long)w->tokens);
        w->total += w->tokens;
        w->shard++;
        free(w->temp); /* it has its final name now */
        w->temp = NULL;
    }
    drop_shard(w);
    return rc;
}

/* ---- tokens ---- */

static int put_id(struct writer *w, uint16_t id, struct err *err)
{
    if (!w->path && open_shard(w, err))
        return -1;
    w->id[w->n++] = id;
    if (w->opt->shard_tokens && w->tokens + w->n == w->opt->shard_tokens)
        return close_shard(w, err);
    return w->n == CHUNK ? flush_ids(w, err) : 0;
}

/* Tokens of a text, out of its map. */
struct piece {
    const uint8_t *from;
    size_t n;
    uint8_t token[4096];
};

static void copy_piece(void *ctx)
{
    struct piece *p = ctx;

    memcpy(p->token, p->from, p->n);
}

static int put_tokens(struct writer *w, const struct data_file *f, struct err *err)
{
    struct piece p;

    for (int64_t at = 0; at < f->tokens; at += (int64_t)p.n) {
        p.from = f->token + at;
        p.n = f->tokens - at < (int64_t)sizeof p.token ? (size_t)(f->tokens - at) : sizeof p.token;
        if (data_files_read(f, 1, copy_piece, &p, err))
            return -1;
        for (size_t i = 0; i < p.n; i++)
            if (put_id(w, p.token[i], err))
                return -1;
    }
    return 0;
}

static int put_file(struct writer *w, const char *path, struct err *err)
{
    struct data_file f;
    int rc = 0;

    if (data_file_open(&f, path, DATA_AUTO, err))
        return -1;
    if (f.kind != DATA_TEXT)
        rc = err_set(err, ERR_INPUT_FILE, "%s is a token file already; name text files", path);
    if (rc == 0 && w->opt->doc_token >= 0)
        rc = put_id(w, (uint16_t)w->opt->doc_token, err);
    if (rc == 0)
        rc = put_tokens(w, &f, err);
    data_file_close(&f);
    return rc;
}

/* Shards of an earlier run beyond the last new one would still match a pattern: they go. */
static void remove_old(const struct writer *w)
{
    for (int i = w->shard; w->opt->shard_tokens; i++) {
        char *path = shard_path(w->opt, i);
        int gone = unlink(path) == 0;

        if (gone)
            printf("%s: removed, it was of an earlier run\n", path);
        free(path);
        if (!gone)
            return;
    }
}

/* No shard that tokens will fill is there, nor one behind them, which would go. */
static int check_outputs(const struct options *opt, int64_t tokens, struct err *err)
{
    int64_t per = opt->shard_tokens, last = per ? tokens / per + (tokens % per != 0) : 0;
    int rc = 0;

    for (int64_t i = 0; i <= last && rc == 0 && !opt->force; i++) {
        char *path = shard_path(opt, (int)i);

        if (access(path, F_OK) == 0)
            rc = err_set(err, ERR_INPUT, "%s exists; give another name, or --force to replace it",
                         path);
        free(path);
    }
    return rc;
}

/* Everything is looked at before the first byte is written. */
static int check_files(const struct options *opt, int n, char **file, struct err *err)
{
    struct data_file f;
    int64_t tokens = 0;
    int rc = check_outputs(opt, 0, err);

    for (int i = 0; i < n && rc == 0; i++) {
        rc = data_file_open(&f, file[i], DATA_AUTO, err);
        if (rc == 0) {
            tokens += f.tokens + (opt->doc_token >= 0);
            data_file_close(&f);
        }
    }
    return rc ? rc : check_outputs(opt, tokens, err);
}

static int make_shards(const struct options *opt, int n, char **file, struct err *err)
{
    struct writer w = {.opt = opt, .fd = -1};
    int rc = check_files(opt, n, file, err);

    if (rc)
        return rc;
    w.id = xmalloc(CHUNK * sizeof *w.id);
    for (int i = 0; i < n && rc == 0; i++)
        rc = put_file(&w, file[i], err);
    if (rc == 0 && w.path)
        rc = close_shard(&w, err);
    drop_shard(&w);
    if (rc == 0) {
        remove_old(&w);
        printf("%lld tokens in %d file%s, vocabulary %lld\n", (long long)w.total, w.shard,
               w.shard == 1 ? "" : "s",
               opt->doc_token > 255 ? (long long)opt->doc_token + 1 : 256LL);
    }
    free(w.id);
    return rc;
}

/* ---- command line ---- */

static const char usage[] =
    "usage: ds-launch data [options] OUT.bin TEXT...\n"
    "\n"
    "Turns text files into a token file that [data] train and valid read: one token a byte.\n"
    "\n"
    "  --shard-tokens N  begin a new file after N tokens (100M, 64Mi): OUT_000000.bin, OUT_000001.bin, ...;\n"
    "                    default: one file\n"
    "  --doc-token ID    put this id (0 to 65535) in front of each text, and set [data] doc_token to\n"
    "                    it; default: none\n"
    "  --force           replace what is there\n"
    "  --help            this text\n";

static int read_number(const char *flag, const char *text, int64_t lo, int64_t hi, int64_t *out,
                       struct err *err)
{
    if (parse_i64(text, lo, hi, out) == 0)
        return 0;
    return err_set(err, ERR_INPUT, "--%s is \"%.64s\"; give a whole number from %lld to %lld", flag,
                   text, (long long)lo, (long long)hi);
}

static int read_size(const char *flag, const char *text, int64_t *out, struct err *err)
{
    if (parse_size(text, out) == 0 && *out > 0)
        return 0;
    return err_set(err, ERR_INPUT, "--%s is \"%.64s\"; give a whole number from 1, such as 100M or 64Mi", flag, text);
}

/* 0, 1 when help was printed, -1. */
static int read_options(struct options *opt, int argc, char **argv, struct err *err)
{
    static const struct option longs[] = {{"shard-tokens", required_argument, NULL, 's'},
                                          {"doc-token", required_argument, NULL, 'd'},
                                          {"force", no_argument, NULL, 'f'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int c, rc = 0;

    opterr = 0;
    optind = 0;
    while (rc == 0 && (c = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
        if (c == 's')
            rc = read_size("shard-tokens", optarg, &opt->shard_tokens, err);
        else if (c == 'd')
            rc = read_number("doc-token", optarg, 0, 65535, &opt->doc_token, err);
        else if (c == 'f')
            opt->force = 1;
        else if (c == 'h')
            rc = fputs(usage, stdout) < 0 ? -1 : 1;
        else
            rc = err_set(err, ERR_INPUT, "%s %s; see ds-launch data --help", argv[optind - 1],
                         c == ':' ? "needs a value" : "is no option of data");
    }
    return rc;
}

int data_main(int argc, char **argv)
{
    struct options opt = {.doc_token = -1};
    struct err err = ERR_INIT;
    int rc = read_options(&opt, argc, argv, &err);

    if (rc == 0 && argc - optind < 2)
        rc = err_set(&err, ERR_INPUT,
                     "name the file to make and at least one text; see ds-launch "
                     "data --help");
    if (rc == 0) {
        opt.out = argv[optind];
        rc = make_shards(&opt, argc - optind - 1, argv + optind + 1, &err);
    }
    if (rc < 0) {
        log_error("%s", err.text);
        return err_exit_code(&err);
    }
    return 0;
}
