/* The norm between the last block and the head: LayerNorm or RMSNorm, by form. */
#include "engine/model/config.h"

#include "engine/base/buf.h"
#include "engine/base/job.h"
#include "engine/ops/linear.h"
#include "engine/ops/norm.h"

#include <stdlib.h>

enum { P_WEIGHT, P_BIAS };

struct norm_state {
    const char *name;
    struct norm norm;
};

static int norm_params(const struct ds_site *site, struct ds_param *out, struct err *err)
{
    const struct model_config *c = site->config;

    (void)err;
    out[P_WEIGHT] = config_vector("weight", c->n_embd, DS_INIT_ONE);
    if (c->form == MODEL_LLAMA)
        return 1;
    out[P_BIAS] = config_vector("bias", c->n_embd, DS_INIT_ZERO);
    return 2;
}

static int norm_shapes(const struct ds_site *site, int64_t B, int64_t T, const struct ds_tensor *x,
                       struct ds_tensor *y, struct err *err)
{
    const struct model_config *c = site->config;

    (void)x;
    (void)err;
    *y = (struct ds_tensor){NULL, site->dtype, 3, {B, T, c->n_embd}};
    return 0;
}

static void norm_setup(struct norm_state *n, const struct ds_site *site, int64_t N)
{
    const struct model_config *c = site->config;

    n->name = site->name;
    n->norm = (struct norm){N, c->n_embd, c->form == MODEL_LLAMA, (float)c->norm_eps, site->dtype};
}

/* Statistics are saved by training and scratch otherwise: both need the same room. */
static int norm_memory(const struct ds_site *site, const struct kernels *k, struct ds_plans *plans,
                       int64_t B, int64_t T, struct ds_memory *out, struct err *err)
{
    struct norm_state n;
    struct ds_tensor stats = {NULL, DS_F32, 2, {0, B * T}};

    (void)plans;
    (void)err;
    norm_setup(&n, site, B * T);
    stats.dim[0] = norm_stats(&n.norm);
    *out = (struct ds_memory){.saved = {{stats, DS_SAVE_DROP_FULL}}, .nsaved = 1};
    out->work[DS_TRAIN] = out->work[DS_RECOMPUTE] = k->norm_bwd_work(n.norm.N, n.norm.C);
    out->work[DS_EVAL] = out->work[DS_DECODE] = tensor_bytes(&stats);
    return 0;
}

static int64_t norm_flops(const struct ds_site *site, int64_t B, int64_t T)
{
    (void)site;
    (void)B;
    (void)T;
    return 0; /* counted: matrix products */
}

static int norm_create(void **state, const struct ds_site *site, const struct kernels *k,
                       struct ds_plans *plans, int64_t B, int64_t T, struct err *err)
{
    struct norm_state *n = xmalloc(sizeof *n);

    (void)k;
    (void)plans;
    (void)err;
    norm_setup(n, site, B * T);
    *state = n;
    return 0;
}

static int norm_layer_forward(void *state, struct ds_call *c, struct err *err)
{
    const struct norm_state *n = state;
    int keep = c->mode == DS_TRAIN || c->mode == DS_RECOMPUTE;

    (void)err;
    norm_forward(&n->norm, c, c->y->data, keep ? c->saved[0] : c->work, c->x->data, c->w[P_WEIGHT],
                 n->norm.rms ? NULL : c->w[P_BIAS]);
    return 0;
}

static int norm_layer_backward(void *state, struct ds_call *c, struct err *err)
{
    const struct norm_state *n = state;
    int want_dw = (c->want & DS_WANT_DW) != 0;

    if (grads_are_f32(n->name, c, n->norm.rms ? 1 : 2, err) < 0)
        return -1;
    norm_backward(&n->norm, c, c->want & DS_WANT_DX ? c->dx->data : NULL, 0,
                  want_dw ? &c->g[P_WEIGHT] : NULL, want_dw && !n->norm.rms ? &c->g[P_BIAS] : NULL,
                  c->dy->data, c->x->data, c->saved[0], c->w[P_WEIGHT], c->work);
    return 0;
}

const struct ds_layer_ops layer_norm = {
    .type = "norm",
    .abi = DS_LAYER_ABI,
    .caps = DS_CAP_DECODE,
    .settings = model_settings,
    .nsettings = MODEL_NSETTINGS,
    .config_bytes = sizeof(struct model_config),
    .check = config_check_input,
    .params = norm_params,
    .shapes = norm_shapes,
    .memory = norm_memory,
    .flops = norm_flops,
    .create = norm_create,
    .destroy = free,
    .forward = norm_layer_forward,
    .backward = norm_layer_backward,
};
