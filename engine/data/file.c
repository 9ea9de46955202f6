/* Token files: telling what a file is, checking every number of its header against its size,
 * mapping it.
 *
 * Whatever passes here can be read without a further check: token[0 .. tokens) lies inside the map.
 * The one thing that a later reader still checks is an id against the model's vocabulary.
 */
#include "engine/data/file.h"

#include "engine/base/buf.h"
#include "engine/data/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are read in place: this needs a little-endian machine"
#endif

enum { LOOK_BYTES = 65536 }; /* of a text that are searched for zero bytes */

static uint32_t word(const void *data, int i)
{
    uint32_t v;

    memcpy(&v, (const uint8_t *)data + 4 * i, 4);
    return v;
}

int bin_is(const void *data, size_t n)
{
    return n >= 4 && (word(data, 0) == BIN_MAGIC_U16 || word(data, 0) == BIN_MAGIC_U32);
}

/* llm.c's other files, so that a mix-up is named. */
static const char *other_magic(uint32_t magic)
{
    switch (magic) {
    case 20240522:
        return "an llm.c multiple-choice file";
    case 20240326:
        return "an llm.c model";
    case 20240327:
        return "an llm.c debug state";
    case 20240328:
        return "an llm.c tokenizer";
    case 20240527:
        return "an llm.c training state";
    default:
        return NULL;
    }
}

static int wrong_magic(const char *name, uint32_t magic, struct err *err)
{
    const char *other = other_magic(magic);

    if (other)
        return err_set(err, ERR_INPUT_FILE,
                       "%s is %s and holds no tokens; name a token file in "
                       "[data]",
                       name, other);
    if (bin_is(&(uint32_t){__builtin_bswap32(magic)}, 4))
        return err_set(err, ERR_INPUT_FILE,
                       "%s was written on a big-endian machine; make it anew "
                       "with `ds-launch data`",
                       name);
    return err_set(
        err, ERR_INPUT_FILE,
        "%s does not begin with the number of an llm.c token file (%d or %d, not %u); make "
        "token files with `ds-launch data`, or set [data] kind = text to train on its bytes",
        name, BIN_MAGIC_U16, BIN_MAGIC_U32, magic);
}

int bin_header_read(struct bin_header *h, const char *name, const void *data, size_t n,
                    uint64_t file_bytes, struct err *err)
{
    uint32_t magic, version, count;
    int64_t tokens;
    int want, width;

    if (n < 4)
        return err_set(err, ERR_INPUT_FILE,
                       "%s is cut short: %llu bytes are no token file; copy it "
                       "again",
                       name, (unsigned long long)file_bytes);
    magic = word(data, 0);
    if (!bin_is(data, n))
        return wrong_magic(name, magic, err);
    if (n < BIN_HEADER_BYTES || file_bytes < BIN_HEADER_BYTES)
        return err_set(err, ERR_INPUT_FILE,
                       "%s is cut short inside its header (%llu of %d bytes); "
                       "copy it again",
                       name, (unsigned long long)file_bytes, BIN_HEADER_BYTES);
    width = magic == BIN_MAGIC_U16 ? 2 : 4;
    want = width == 2 ? BIN_VERSION_U16 : BIN_VERSION_U32;
    version = word(data, 1);
    count = word(data, 2);
    if (version != (uint32_t)want)
        return err_set(err, ERR_INPUT_FILE,
                       "%s is a token file of version %u and version %d is "
                       "known; make it anew with `ds-launch data`",
                       name, version, want);
    tokens = (int64_t)((file_bytes - BIN_HEADER_BYTES) / (unsigned)width);
    if ((file_bytes - BIN_HEADER_BYTES) % (unsigned)width || count != (uint32_t)tokens)
        return err_set(
            err, ERR_INPUT_FILE,
            "%s %s: its header counts %u tokens and its size makes %lld of %d bytes%s; copy "
            "it again or make it anew",
            name, count > (uint64_t)tokens ? "is cut short" : "has a wrong size", count,
            (long long)tokens, width,
            (file_bytes - BIN_HEADER_BYTES) % (unsigned)width ? " and a part" : "");
    if (tokens == 0)
        return err_set(err, ERR_INPUT_FILE, "%s holds no tokens; leave it out of [data]", name);
    *h = (struct bin_header){width, tokens};
    return 0;
}

void bin_header_write(uint8_t out[BIN_HEADER_BYTES], int width, int64_t tokens)
{
    uint32_t head[3] = {width == 2 ? BIN_MAGIC_U16 : BIN_MAGIC_U32,
                        width == 2 ? BIN_VERSION_U16 : BIN_VERSION_U32, (uint32_t)tokens};

    memset(out, 0, BIN_HEADER_BYTES);
    memcpy(out, head, sizeof head);
}

/* ---- opening ---- */

static int map_file(struct data_file *f, struct err *err)
{
    struct stat st;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return err_set(err, ERR_INPUT_FILE,
                       "cannot open the data file %s: %m; check the name and "
                       "its permissions",
                       f->path);
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(err, ERR_INPUT_FILE,
                       "the data file %s is %s; name regular files, or a "
                       "pattern such as DIR/*.txt",
                       f->path, S_ISDIR(st.st_mode) ? "a folder" : "no regular file");
    }
    if (st.st_size == 0) {
        close(fd);
        return err_set(err, ERR_INPUT_FILE, "the data file %s is empty; leave it out of [data]",
                       f->path);
    }
    f->map_bytes = (size_t)st.st_size;
    f->map = mmap(NULL, f->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (f->map == MAP_FAILED) {
        f->map = NULL;
        return err_set(err, ERR_INPUT_FILE,
                       "cannot map the data file %s (%zu bytes): %m; copy it to "
                       "a local disk",
                       f->path, f->map_bytes);
    }
    return 0;
}

static int looks_bin(const struct data_file *f)
{
    size_t n = strlen(f->path);

    return bin_is(f->map, f->map_bytes) || (n > 4 && strcmp(f->path + n - 4, ".bin") == 0);
}

/* What a person names by mistake: archives, checkpoints, programs. All have zero bytes early, or
 * are known by how they begin. */
static int check_text(const struct data_file *f, struct err *err)
{
    static const struct {
        const char *magic, *what;
    } known[] = {{"\x1f\x8b", "gzip"},
                 {"PK\x03\x04", "zip"},
                 {"\xfd"
                  "7zXZ",
                  "xz"},
                 {"\x28\xb5\x2f\xfd", "zstd"},
                 {"BZh", "bzip2"},
                 {"%PDF-", "PDF"}};
    size_t look = f->map_bytes < LOOK_BYTES ? f->map_bytes : LOOK_BYTES;
    const uint8_t *zero = memchr(f->map, 0, look);

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i].magic);

        if (f->map_bytes >= n && memcmp(f->map, known[i].magic, n) == 0)
            return err_set(err, ERR_INPUT_FILE,
                           "the data file %s is %s data and no plain text; unpack it first, or set "
                           "[data] kind = text to train on its bytes",
                           f->path, known[i].what);
    }
    if (zero)
        return err_set(
            err, ERR_INPUT_FILE,
            "the data file %s is no plain text (byte %zu is zero); name a text or a token "
            "file, or set [data] kind = text to train on its bytes",
            f->path, (size_t)(zero - (const uint8_t *)f->map));
    return 0;
}

/* The first look into a file, as an argument of map_guard. */
struct look {
    struct data_file *f;
    enum data_kind kind;
    struct err *err;
    int rc;
};

static int look_inside(struct data_file *f, enum data_kind kind, struct err *err)
{
    struct bin_header h;

    f->kind = kind != DATA_AUTO ? kind : looks_bin(f) ? DATA_BIN : DATA_TEXT;
    f->width = 1;
    f->tokens = (int64_t)f->map_bytes;
    f->token = f->map;
    if (f->kind == DATA_TEXT) {
        return kind == DATA_AUTO ? check_text(f, err) : 0;
    }
    if (bin_header_read(&h, f->path, f->map, f->map_bytes, f->map_bytes, err))
        return -1;
    f->width = h.width;
    f->tokens = h.tokens;
    f->token += BIN_HEADER_BYTES;
    return 0;
}

static void look(void *ctx)
{
    struct look *l = ctx;

    l->rc = look_inside(l->f, l->kind, l->err);
}

int data_file_open(struct data_file *f, const char *path, enum data_kind kind, struct err *err)
{
    struct look l = {f, kind, err, -1};

    *f = (struct data_file){.path = xstrdup(path)};
    if (map_file(f, err) == 0 && data_files_read(f, 1, look, &l, err) == 0 && l.rc == 0)
        return 0;
    data_file_close(f);
    return -1;
}

int data_files_read(const struct data_file *f, int n, void (*read)(void *ctx), void *ctx,
                    struct err *err)
{
    const char *at = map_guard(read, ctx), *path = "a data file";

    if (!at)
        return 0;
    for (int i = 0; i < n; i++)
        if (at >= (const char *)f[i].map && at < (const char *)f[i].map + f[i].map_bytes)
            path = f[i].path;
    return err_set(err, ERR_INPUT_FILE,
                   "%s was cut short while it was read, or its disk fails; put it back as it was "
                   "and leave it alone while a job reads it",
                   path);
}

void data_file_close(struct data_file *f)
{
    if (f->map)
        munmap(f->map, f->map_bytes);
    free(f->path);
    *f = (struct data_file){0};
}

#define MAX_LOOP(type)                                        \
    do {                                                      \
        const type *t = (const type *)(const void *)f->token; \
        type m = 0;                                           \
        for (int64_t i = 0; i < f->tokens; i++)               \
            m = t[i] > m ? t[i] : m;                          \
        max = m;                                              \
    } while (0)

uint32_t data_file_max(const struct data_file *f, int64_t *where)
{
    uint32_t max;

    madvise(f->map, f->map_bytes, MADV_SEQUENTIAL);
    if (f->width == 1)
        MAX_LOOP(uint8_t);
    else if (f->width == 2)
        MAX_LOOP(uint16_t);
    else
        MAX_LOOP(uint32_t);
    madvise(f->map, f->map_bytes, MADV_NORMAL);
    for (*where = 0; data_file_token(f, *where) != max;)
        ++*where;
    return max;
}
