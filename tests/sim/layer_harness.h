/* Runs a list of layers on one rank, with nothing of the engine between test and layer: weights and
 * gradients are arrays of the harness, every tensor a layer gets has a guard page behind it and
 * holds NaN until the layer writes it. Failures of the harness itself end the test by cmocka's
 * fail(). */
#ifndef DS_TESTS_LAYER_HARNESS_H
#define DS_TESTS_LAYER_HARNESS_H

#include "engine/model/model.h"
#include "tests/sim/guard.h"

struct harness_param {
    int64_t numel;
    int owner_layer, owner_param; /* itself unless tied */
    float *w;                     /* master; NULL when tied */
    struct guard cast, grad;      /* compute type; fp32 */
};

struct harness {
    struct settings_rows rows;
    struct settings settings;
    struct job job;
    struct model *model;
    const struct kernels *k;
    struct ds_plans *plans;
    enum ds_dtype dtype;
    struct harness_param **param; /* [layer][param] */
    /* of the present shape */
    int64_t B, T;
    void **state;
    struct ds_memory *mem;
    struct ds_tensor *y;          /* [n] */
    struct guard *y_mem, *dx_mem; /* [n]: output of layer i, gradient of that output */
    struct guard **saved;         /* [n][nsaved] */
    struct guard work;
    struct guard *key, *value; /* [n] caches */
    int64_t cache;             /* tokens they hold */
};

/* text: an INI file with at least [model]; vocab and positions as from data. */
struct harness *harness_create(const char *text, enum ds_dtype dtype, int64_t vocab,
                               int64_t seq_len);
void harness_destroy(struct harness *h);

/* Weights: all parameters from a normal-like stream (norm weights around 1), then cast. */
void harness_randomize(struct harness *h, uint64_t seed, float scale);
/* After masters changed: rounds them to the compute type. */
void harness_sync(struct harness *h);

/* One global tensor by its full name ("block.0.attn.qkv.q"): master and gradient, numel elements
 * each. */
int harness_find(struct harness *h, const char *name, float **w, float **grad, int64_t *numel);
/* All of them in order: calls fn for each tensor that is not tied. */
void harness_each(struct harness *h,
                  void (*fn)(const char *name, int ndim, float *w, float *grad, int64_t numel,
                             void *arg),
                  void *arg);

void harness_shape(struct harness *h, int64_t B, int64_t T);
/* Poisons outputs, saved tensors, scratch, activations' gradients; parameters' gradients too when
 * grads. */
void harness_poison(struct harness *h, int grads);

/* loss[3] is added to. seed: the loss seed. mode TRAIN, RECOMPUTE or EVAL. */
void harness_forward(struct harness *h, enum ds_mode mode, const struct ds_batch *b, float seed,
                     double loss[3]);
/* beta 0 or 1 for first contributions. apart: DX and DW in two calls, scratch poisoned between. */
void harness_backward(struct harness *h, const struct ds_batch *b, float seed, float beta,
                      int apart);
/* Appends b behind past tokens; logits (B, T, V) are copied out. */
void harness_decode(struct harness *h, const struct ds_batch *b, int64_t past, int64_t max,
                    float *logits);
/* Fails when anything wrote behind its end. */
void harness_check_guards(const struct harness *h);

/* A batch in memory: random tokens and targets below vocab, one document a sample. */
struct batch_mem {
    struct ds_batch b;
    int32_t *token, *target, *pos, *doc;
    uint64_t *sample;
};
void batch_create(struct batch_mem *m, int64_t B, int64_t T, int64_t vocab, uint64_t seed);
void batch_destroy(struct batch_mem *m);

#endif
