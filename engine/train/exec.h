/* Runs the layers of one rank: memory of activations, forward, backward, decode. One arena per shape (B, T)
 * gives every tensor of a step the same address each step; after the first step of a shape nothing is
 * allocated. */
#ifndef DS_EXEC_H
#define DS_EXEC_H

#include "engine/device/device.h"
#include "engine/model/model.h"
#include "engine/param/param.h"
#include "engine/zero/zero.h"

struct exec;

struct exec_memory { /* what the weights and gradients are, all flats one after the other */
    void *weight;    /* compute type */
    float *grad;     /* NULL: no backward */
    enum ds_dtype dtype;
    struct zero *zero; /* not NULL: weights and gradients come and go with their layer, from there */
};

int exec_create(struct exec **, const struct model *, const struct order *, const struct param_table *,
                const struct exec_memory *, const struct kernels *, struct device *, struct err *);
void exec_destroy(struct exec *);

/* Makes plans and the arena for micro-batches of B x T. */
int exec_prepare(struct exec *, int64_t B, int64_t T, struct err *);
/* Bytes of the arena for B x T (activations, saved tensors, scratch), without making it. */
int exec_bytes(struct exec *, int64_t B, int64_t T, size_t *bytes, struct err *);

/* A line for the start table: which activations are made again. Nothing where all are kept. */
int exec_say_again(struct exec *, int64_t B, int64_t T, struct buf *out, struct err *err);

/* mode TRAIN or EVAL. loss[3] += {sum over valid targets, valid targets, auxiliary}. loss_seed is what
 * backward will be seeded with. */
int exec_forward(struct exec *, enum ds_mode mode, const struct ds_batch *, const struct ds_scalars *,
                 float loss_seed, double loss[3], struct err *);
/* Of the last TRAIN forward. first: gradients are overwritten (first micro-batch of a step), else added. */
int exec_backward(struct exec *, const struct ds_batch *, const struct ds_scalars *, float loss_seed,
                  int first, struct err *);

/* DECODE: appends batch (B x T new tokens) to the caches of max tokens made by the first call after
 * exec_decode_reset; *logits (B, T, V) fp32 is valid until the next call. */
int exec_decode(struct exec *, const struct ds_batch *, const struct ds_scalars *, int64_t max,
                struct ds_tensor *logits, struct err *);
void exec_decode_reset(struct exec *);

/* Floating point operations of one forward and backward of B x T (backward counted as two forwards), with
 * the layers that run forward twice. */
int64_t exec_flops(const struct exec *, int64_t B, int64_t T);

#endif
