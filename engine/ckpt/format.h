/* The checkpoint format in memory: a file's image out, headers and manifests in. Pure: no I/O, no
 * threads. Inside engine/ckpt only. FORMAT.md has the bytes. */
#ifndef DS_CKPT_FORMAT_H
#define DS_CKPT_FORMAT_H

#include "engine/base/buf.h"
#include "engine/base/frag.h"
#include "engine/ckpt/ckpt.h"

#define CKPT_HEADER_MAX (100u << 20) /* as the safetensors library has it */
#define CKPT_ALIGN 64                /* the data begins at a multiple of this */

/* What stands before the hash that ends a manifest: 16 digits and "}\n follow. */
#define MANIFEST_SEAL ",\n\"xxh3\":\""

/* ---- out ---- */

/* A whole file. data is reused from one build to the next. */
struct image {
    char *data;                      /* bytes of it are the file; owned */
    size_t bytes, cap, header_bytes; /* header_bytes: length word, text and padding */
    struct image_frag {
        size_t hex, at, bytes; /* where its 16 digits and its data stand */
    } * frag;
    int nfrags, frag_cap;
};

/* Header with zeros for hashes, and the entries' data. Entries of count 0 are left out. */
void image_build(struct image *im, const struct ckpt_meta *meta, int rank,
                 const struct ckpt_entry *entries, int n, const struct ckpt_entry *tensors,
                 int ntensors);
/* Hashes every fragment and writes the digits in. */
void image_seal(struct image *im);
void image_clear(struct image *im);

struct ckpt_file {
    char *name; /* rank-0.safetensors; owned */
    uint64_t bytes, header_bytes, header_hash;
};
/* The manifest is its head, then its files: these are known last. */
void manifest_print_head(const struct ckpt_meta *meta, const struct ckpt_entry *tensors,
                         int ntensors, struct buf *out);
void manifest_print_files(const struct ckpt_file *files, int nfiles, struct buf *out);

/* ---- in: parse.c ---- */

/* One tensor of a safetensors header. */
struct st_entry {
    char *key, *dtype; /* owned */
    int ndim;
    uint64_t shape[8];
    uint64_t at, bytes; /* in the data part */
    /* of a fragment of ours; name NULL in a foreign file */
    char *name, *kind; /* owned */
    int gdim;
    uint64_t gshape[4], total, first, count, hash;
};
struct st_header {
    struct st_entry *entry;
    int n;
    uint64_t data_at; /* where the data part begins in the file */
    int ours;         /* has our metadata */
};
/* text: the n bytes behind the length word of a file of file_bytes bytes; name opens the errors.
 * Every number is checked against the file's size. ours: each entry must be a fragment. 0 or -1. */
int st_header_parse(struct st_header *h, const char *name, const char *text, size_t n,
                    uint64_t file_bytes, int ours, struct err *err);
void st_header_clear(struct st_header *h);

struct manifest {
    struct ckpt_meta meta;
    uint64_t seal; /* the hash of its text that ends it */
    struct ckpt_file *file;
    int nfiles;
    struct ckpt_entry *tensor; /* whole tensors; name and kind owned */
    int ntensors;
};
int manifest_parse(struct manifest *m, const char *name, const char *text, size_t n,
                   struct err *err);
void manifest_clear(struct manifest *m);

/* Product of a shape, -1 when it does not fit (or is more than what can be bytes of fp32). */
int shape_total(const uint64_t *shape, int ndim, uint64_t *total);

#endif
