/* An open checkpoint from inside: what ckpt_main shows beyond ckpt.h. Inside engine/ckpt only. */
#ifndef DS_CKPT_READER_H
#define DS_CKPT_READER_H

#include "engine/ckpt/format.h"

struct ckpt {
    char *path;        /* the step folder */
    char *passed_over; /* why it is not the one that `latest` names, or NULL */
    struct manifest m;
    struct st_header *header; /* [m.nfiles] */
    struct frag *have;        /* sorted */
    int nhave;
    struct place {
        int file;
        uint64_t at;     /* of its first byte in the file */
        const char *key; /* in header */
    } * place;
};

/* A step folder; see ckpt_open, which chooses it (choose.c). */
int ckpt_open_step(struct ckpt **, const char *path, struct err *err);
/* Reads every fragment and holds it against its hash. *bytes: how many were read. */
int ckpt_verify(struct ckpt *c, uint64_t *bytes, struct err *err);
/* Header of any safetensors file. */
int st_header_read(struct st_header *h, const char *path, struct err *err);
/* The data of that file against the hashes in its header, if it is one of ours. */
int st_verify(const struct st_header *h, const char *path, struct err *err);

#endif
