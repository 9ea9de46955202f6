/* A layer: what the engine asks of it and what it gets. A user's own layer is written from this file
 * alone; the built-in ones (engine/model) use nothing else.
 *
 * A layer knows no mesh and no optimizer. It declares parameters by global shape; the engine holds, gathers
 * and reduces them. forward and backward never allocate, never wait for the host, draw random numbers only
 * through struct ds_dropout, and communicate only through c->tp. y and dx never alias x or dy.
 */
#ifndef DS_LAYER_H
#define DS_LAYER_H

#include "engine/base/err.h"
#include "engine/base/settings.h"
#include "engine/tensor/tensor.h"
#include "kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>

#define DS_LAYER_ABI 1

/* ---- parameters ---- */

enum ds_cut {
    DS_WHOLE,      /* every tensor rank has all of it */
    DS_CUT,        /* of U units rank i of t owns [iU/t, (i+1)U/t) of every part */
    DS_CUT_SHARED, /* U < t: a unit lives on t/U ranks, its gradient is summed among them */
};

enum ds_param_flags {
    DS_FROZEN = 1,
    DS_BUFFER = 2,   /* saved, no gradient */
    DS_KEEP_F32 = 4, /* gathered as fp32 whatever the compute type */
    DS_FWD_ONLY = 8, /* backward never reads it */
    DS_PARTIAL = 16, /* sees T/t tokens under sequence parallelism: summed over the tensor group */
    DS_VOCAB = 32,   /* may carry padding rows: never stored, nor in the loss or the norm */
};

struct ds_init { /* first value of element i: of (seed, global name, i); never of rank or mesh */
    enum { DS_INIT_ZERO, DS_INIT_ONE, DS_INIT_NORMAL, DS_INIT_UNIFORM } kind;
    double scale; /* standard deviation, or bound of [-scale, scale) */
};

struct ds_part {
    const char *name; /* "q", "k", "v"; "" when the parameter is one tensor */
    int64_t rows;
};

/* Declared order = order in the layer's flat buffer. Strings live as long as the layer's config. */
struct ds_param {
    const char *name;       /* within the layer: "attn.qkv" */
    struct ds_part part[4]; /* stacked on axis 0; each is its own global tensor LAYER.NAME[.PART] */
    int nparts;
    int64_t cols;           /* elements per row; 1 for a vector */
    int64_t unit;           /* rows that are never separated: head width, or 1 */
    enum ds_cut cut;
    unsigned flags;
    const char *tie;        /* full name of an owner of equal shape and cut, or NULL */
    const char *group;      /* optimizer group; NULL: "no_decay" where cols == 1, else "decay" */
    struct ds_init init;
};

/* ---- one batch ---- */

struct ds_batch {
    int64_t B, T;
    const int32_t *token;   /* (B, T) */
    const int32_t *target;  /* (B, T); -1 is not counted */
    const int32_t *pos;     /* (B, T) position within its document */
    const int32_t *doc;     /* (B, T) index where its document begins; key j visible to i iff doc[i]<=j<=i */
    const uint64_t *sample; /* (B) global position in the run's sample order: the random key */
};

/* ---- what forward and backward get ---- */

enum ds_mode { DS_TRAIN, DS_RECOMPUTE, DS_EVAL, DS_DECODE };
enum { DS_WANT_DX = 1, DS_WANT_DW = 2 };

struct ds_grad {
    void *data; /* local part, same layout as w */
    enum ds_dtype dtype;
    float beta; /* g = beta * g + dW; at 0 the old content is never read */
};

struct ds_tp; /* the tensor group (engine/tp); NULL: one rank */

struct ds_call {
    enum ds_mode mode;
    unsigned want;                /* backward: DS_WANT_* */
    const struct ds_batch *batch;
    const struct ds_tensor *x;    /* input, in backward too; the first layer gets NULL and reads batch */
    const struct ds_tensor *dy;   /* backward; the loss layer gets NULL */
    struct ds_tensor *y, *dx;     /* dx NULL for the first layer; y NULL for the loss layer except in DECODE */
    void *const *w;               /* gathered local part of each declared parameter, compute type */
    struct ds_grad *g;            /* backward; one per declared parameter */
    void **saved;                 /* in the order of ds_memory.saved; forward writes, backward reads */
    void *work;                   /* ds_memory.work[mode] bytes, content undefined */
    struct ds_kv *kv;             /* DECODE: this layer's cache */
    double *loss;                 /* {sum, valid targets, auxiliary}; the loss layer adds to it */
    float loss_seed;              /* backward starts with d(sum)/d(logit) times this */
    const struct ds_scalars *s;
    const struct ds_tp *tp;
    const struct kernels *k;
    struct ds_plans *plans;
    struct ds_stream *stream;
};

/* ---- sizes ---- */

struct ds_saved {
    struct ds_tensor t; /* dtype and shape; data unused */
    /* With activation checkpointing: never dropped; dropped where forward runs again in RECOMPUTE; also
     * dropped where restore() makes it again, from x and what is not marked so. */
    enum { DS_SAVE_KEEP, DS_SAVE_DROP_FULL, DS_SAVE_DROP_SELECTIVE } keep;
};

#define DS_MAX_SAVED 24
#define DS_MAX_PARAMS 24

struct ds_memory {
    struct ds_saved saved[DS_MAX_SAVED];
    int nsaved;
    size_t work[4];           /* by enum ds_mode, forward and backward the larger */
    int64_t kv_heads, kv_dim; /* DECODE cache per token: 2 * kv_heads * kv_dim elements; 0: none */
};

/* Where a layer stands. */
struct ds_site {
    const char *name;       /* "block.3"; the prefix of its parameters and random sites */
    int index, count;       /* position among all layers of the model */
    int type_index, type_count; /* position among the layers of its type */
    const void *config;     /* config_bytes, filled from settings */
    enum ds_dtype dtype;    /* compute type */
    int tp_rank, tp_size;
    uint64_t seed;
};

enum ds_caps {
    DS_CAP_SEQ_SPLIT = 1, /* works on T/t tokens under sequence parallelism */
    DS_CAP_DECODE = 2,
    DS_CAP_LOSS = 4,      /* the last layer: adds to c->loss; y is the logits in DECODE */
};

struct ds_layer_ops {
    const char *type; /* the word in [model] layers */
    unsigned abi;     /* DS_LAYER_ABI */
    unsigned caps;
    const struct setting *settings; /* keys of section [model] that it reads; may share rows with others */
    int nsettings;
    size_t config_bytes;

    /* Pure: refuse sizes or meshes it cannot do, with the remedy. x is the input's shape (ndim 0 for the
     * first layer). */
    int (*check)(const struct ds_site *, const struct ds_tensor *x, struct err *);
    /* Pure: declares up to DS_MAX_PARAMS parameters; returns their number or -1. */
    int (*params)(const struct ds_site *, struct ds_param *out, struct err *);
    /* Pure: local output shape for a batch of B x T; asked again for each new T. */
    int (*shapes)(const struct ds_site *, int64_t B, int64_t T, const struct ds_tensor *x,
                  struct ds_tensor *y, struct err *);
    /* Pure given plans: saved tensors and scratch for B x T. plans NULL: scratch of products left out. */
    int (*memory)(const struct ds_site *, const struct kernels *, struct ds_plans *, int64_t B, int64_t T,
                  struct ds_memory *, struct err *);
    /* Pure: floating point operations of one forward. */
    int64_t (*flops)(const struct ds_site *, int64_t B, int64_t T);
    /* Plans and tables of this rank for B x T, never parameters; one state per distinct (B, T). */
    int (*create)(void **state, const struct ds_site *, const struct kernels *, struct ds_plans *,
                  int64_t B, int64_t T, struct err *);
    void (*destroy)(void *state);
    int (*forward)(void *state, struct ds_call *, struct err *);  /* RECOMPUTE is bit-equal to TRAIN */
    int (*backward)(void *state, struct ds_call *, struct err *); /* DX and DW may come as two calls */
    /* Optional: rebuilds the DROP_SELECTIVE tensors, bit-equal, before a backward; mode is RECOMPUTE. */
    int (*restore)(void *state, struct ds_call *, struct err *);
};

#endif
