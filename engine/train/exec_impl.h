/* What the files of the executor share: see exec.h. */
#ifndef DS_EXEC_IMPL_H
#define DS_EXEC_IMPL_H

#include "engine/train/exec.h"

/* What is made for micro-batches of one size. */
struct shape {
    int64_t B, T;
    int decode;
    void **state;          /* [n] of the layers */
    struct ds_memory *mem; /* [n] */
    struct ds_tensor *y;   /* [n] */
    void ***saved;         /* [n][nsaved] */
    void *dx[2], *work;
    char *block;           /* the arena */
    size_t bytes;
};

/* One run through the layers, and one layer of it. */
struct pass {
    struct exec *e;
    struct shape *s;
    struct ds_call call; /* what all layers share */
    int first;           /* gradients are overwritten */
    int rc;
    struct err err;      /* of the layers; the host has its own */
};

struct task {
    struct pass *pass;
    int use; /* of the order */
};

struct exec {
    const struct model *model;
    const struct order *order;
    const struct param_table *table;
    struct exec_memory mem;
    const struct kernels *k;
    struct device *dev;
    struct ds_plans *plans;
    int threads;          /* that the plans are for */
    void ***w;            /* [use][param]: work that is queued still reads an earlier use's */
    struct ds_grad **g;   /* [use][param] data and type; beta set per call */
    unsigned char **first; /* [layer][param] 1: first contribution in backward order */
    struct task *task;    /* [use] */
    struct shape *shape;
    int nshapes, cap_shapes;
    struct ds_kv *kv;     /* [n] decode caches, k NULL where none */
    int64_t kv_past, kv_max;
};

/* ---- exec_shape.c ---- */

/* Found or made; NULL: err. */
struct shape *exec_shape(struct exec *, int64_t B, int64_t T, int decode, struct err *err);
void exec_shape_clear(struct exec *, struct shape *);
/* Of layer l: the loss layer has one in decoding only. */
int exec_has_output(const struct exec *, const struct shape *, int l);

#endif
