/* One file of tokens, mapped read-only. Internal to engine/data. */
#ifndef DS_DATA_FILE_H
#define DS_DATA_FILE_H

#include "engine/base/err.h"
#include "engine/base/job.h"

#include <stddef.h>
#include <stdint.h>

/* llm.c's token files: 256 int32 of header (magic, version, count, zeros), then the ids,
 * little-endian. */
enum {
    BIN_HEADER_BYTES = 1024,
    BIN_MAGIC_U16 = 20240520, /* GPT-2 ids, uint16 */
    BIN_VERSION_U16 = 1,
    BIN_MAGIC_U32 = 20240801, /* Llama-3 ids, uint32 */
    BIN_VERSION_U32 = 7,
};

struct bin_header {
    int width;      /* bytes per id: 2 or 4 */
    int64_t tokens; /* ids in the file */
};

/* Is this the beginning of a token file (whatever else may be wrong with it)? */
int bin_is(const void *data, size_t n);

/* Reads and checks the header of a token file of file_bytes bytes, of which n lie at data (at least
 * BIN_HEADER_BYTES unless the file is shorter). The count is 32 bits wide in the header: past 2^31
 * tokens the file's size decides and the header's low 32 bits must agree. name is what errors call
 * the file. Pure. */
int bin_header_read(struct bin_header *h, const char *name, const void *data, size_t n,
                    uint64_t file_bytes, struct err *err);

/* The header of a file of this many ids of this width. */
void bin_header_write(uint8_t out[BIN_HEADER_BYTES], int width, int64_t tokens);

struct data_file {
    char *path;          /* owned */
    enum data_kind kind; /* DATA_TEXT or DATA_BIN */
    int width;           /* bytes per token: 1 text, 2 or 4 .bin */
    int64_t tokens;
    void *map; /* the whole file; owned */
    size_t map_bytes;
    const uint8_t *token; /* the first one, inside map */
};

/* kind: what it has to be, DATA_AUTO: told from the content. */
int data_file_open(struct data_file *f, const char *path, enum data_kind kind, struct err *err);
void data_file_close(struct data_file *f);

static inline uint32_t data_file_token(const struct data_file *f, int64_t i)
{
    if (f->width == 1)
        return f->token[i];
    if (f->width == 2)
        return ((const uint16_t *)(const void *)f->token)[i];
    return ((const uint32_t *)(const void *)f->token)[i];
}

/* The largest id in the file and where it stands first. */
uint32_t data_file_max(const struct data_file *f, int64_t *where);

/* Calls read(ctx), which reads tokens of these n files and allocates nothing. 0, or -1 with the name of
 * the file that was cut short while it was read. */
int data_files_read(const struct data_file *f, int n, void (*read)(void *ctx), void *ctx,
                    struct err *err);

#endif
