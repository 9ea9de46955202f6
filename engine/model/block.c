/* The decoder block: pre-norm attention and feed-forward around a residual stream, in both forms.
 *
 * This file says what the block declares (parameters, shapes, memory); block_attn.c and block_mlp.c
 * compute. Saved tensors are written once, in forward, and only read in backward, so DX and DW may
 * come as two calls in any order. What no product with a weight makes (the norms' outputs, attention's
 * own, the activation) is marked as droppable: restore() makes it again, bit-equal.
 */
#include "engine/model/block.h"

#include "engine/base/buf.h"
#include "engine/base/job.h"
#include "engine/base/rng.h"
#include "engine/ops/scratch.h"

#include <stdlib.h>

/* ---- parameters ---- */

static struct ds_param matrix(const char *name, int64_t rows, int64_t cols, int64_t unit,
                              double std)
{
    return (struct ds_param){.name = name,
                             .part = {{"", rows}},
                             .nparts = 1,
                             .cols = cols,
                             .unit = unit,
                             .cut = DS_CUT,
                             .init = {DS_INIT_NORMAL, std}};
}

/* The bias of a column-parallel product: cut like its matrix. */
static struct ds_param cut_bias(const char *name, const struct ds_param *matrix_)
{
    struct ds_param p = *matrix_;

    p.name = name;
    p.cols = 1;
    p.init = (struct ds_init){DS_INIT_ZERO, 0};
    return p;
}

static struct ds_param qkv_param(const struct model_config *c)
{
    int64_t kv = c->n_kv_head * c->head_dim;
    struct ds_param p = matrix("attn.qkv", 0, c->n_embd, c->head_dim, c->init_std);

    p.part[0] = (struct ds_part){"q", c->n_head * c->head_dim};
    p.part[1] = (struct ds_part){"k", kv};
    p.part[2] = (struct ds_part){"v", kv};
    p.nparts = 3;
    return p;
}

static struct ds_param fc_param(const struct model_config *c)
{
    struct ds_param p;

    if (c->form != MODEL_LLAMA)
        return matrix("mlp.fc", c->ffn_dim, c->n_embd, 1, c->init_std);
    p = matrix("mlp.gate_up", 0, c->n_embd, 1, c->init_std);
    p.part[0] = (struct ds_part){"gate", c->ffn_dim};
    p.part[1] = (struct ds_part){"up", c->ffn_dim};
    p.nparts = 2;
    return p;
}

/* Every parameter in declared order; at[p] says where p went. Returns their number. */
static int declare(const struct model_config *c, const struct ds_site *site, struct ds_param *out,
                   int8_t *at)
{
    int llama = c->form == MODEL_LLAMA, n = 0;
    double std = config_residual_std(c, site);
    struct ds_param all[P_COUNT] = {
        [P_NORM1] = config_vector("norm1.weight", c->n_embd, DS_INIT_ONE),
        [P_NORM1_BIAS] = config_vector("norm1.bias", c->n_embd, DS_INIT_ZERO),
        [P_QKV] = qkv_param(c),
        [P_OUT] = matrix("attn.out", c->n_head * c->head_dim, c->n_embd, c->head_dim, std),
        [P_OUT_BIAS] = config_vector("attn.out_bias", c->n_embd, DS_INIT_ZERO),
        [P_NORM2] = config_vector("norm2.weight", c->n_embd, DS_INIT_ONE),
        [P_NORM2_BIAS] = config_vector("norm2.bias", c->n_embd, DS_INIT_ZERO),
        [P_FC] = fc_param(c),
        [P_PROJ] = matrix(llama ? "mlp.down" : "mlp.proj", c->ffn_dim, c->n_embd, 1, std),
        [P_PROJ_BIAS] = config_vector(llama ? "mlp.down_bias" : "mlp.proj_bias", c->n_embd, DS_INIT_ZERO),
    };

    all[P_QKV_BIAS] = cut_bias("attn.qkv_bias", &all[P_QKV]);
    all[P_FC_BIAS] = cut_bias(llama ? "mlp.gate_up_bias" : "mlp.fc_bias", &all[P_FC]);
    for (int p = 0; p < P_COUNT; p++) {
        int norm_bias = p == P_NORM1_BIAS || p == P_NORM2_BIAS;
        int bias = p == P_QKV_BIAS || p == P_OUT_BIAS || p == P_FC_BIAS || p == P_PROJ_BIAS;

        at[p] = -1;
        if ((norm_bias && llama) || (bias && !config_bias(c)))
            continue;
        at[p] = (int8_t)n;
        out[n++] = all[p];
    }
    return n;
}

static int block_params(const struct ds_site *site, struct ds_param *out, struct err *err)
{
    struct model_config c;
    int8_t at[P_COUNT];

    (void)err;
    config_resolve(site, &c);
    return declare(&c, site, out, at);
}

/* ---- sizes ---- */

static int block_shapes(const struct ds_site *site, int64_t B, int64_t T, const struct ds_tensor *x,
                        struct ds_tensor *y, struct err *err)
{
    const struct model_config *c = site->config;

    (void)x;
    (void)err;
    *y = (struct ds_tensor){NULL, site->dtype, 3, {B, T, c->n_embd}};
    return 0;
}

static struct linear map(const struct block *b, int64_t in, int64_t out, enum linear_store store)
{
    return (struct linear){.N = b->N,
                           .in = in,
                           .out = out,
                           .store = store,
                           .dtype = b->dtype,
                           .ytype = b->dtype,
                           .bias = config_bias(&b->c)};
}

static uint32_t named_site(const struct ds_site *site, const char *what)
{
    char *word = xasprintf("%s.%s", site->name, what);
    uint32_t n = rng_site(word);

    free(word);
    return n;
}

static void block_setup(struct block *b, const struct ds_site *site, int64_t B, int64_t T)
{
    struct ds_param unused[P_COUNT];
    struct model_config *c = &b->c;

    *b = (struct block){
        .name = site->name, .dtype = site->dtype, .seed = site->seed, .B = B, .T = T, .N = B * T};
    config_resolve(site, c);
    b->nparams = declare(c, site, unused, b->at);
    b->att_width = c->n_head * c->head_dim;
    b->qkv_width = b->att_width + 2 * c->n_kv_head * c->head_dim;
    b->fc_width = c->form == MODEL_LLAMA ? 2 * c->ffn_dim : c->ffn_dim;
    b->norm1 = (struct norm){b->N, c->n_embd, c->form == MODEL_LLAMA, (float)c->norm_eps, b->dtype};
    b->norm2 = b->norm1;
    b->qkv = map(b, c->n_embd, b->qkv_width, LINEAR_OUT_IN);
    b->out = map(b, b->att_width, c->n_embd, LINEAR_IN_OUT);
    b->fc = map(b, c->n_embd, b->fc_width, LINEAR_OUT_IN);
    b->proj = map(b, c->ffn_dim, c->n_embd, LINEAR_IN_OUT);
    b->attn_site = named_site(site, "attn_dropout");
    b->out_site = named_site(site, "attn.resid_dropout");
    b->proj_site = named_site(site, "mlp.resid_dropout");
}

static void saved_list(const struct block *b, struct ds_saved *s)
{
    int64_t B = b->B, T = b->T, C = b->c.n_embd, stats = norm_stats(&b->norm1);
    enum ds_dtype dt = b->dtype;

    s[S_NORM1] = (struct ds_saved){{NULL, dt, 3, {B, T, C}}, DS_SAVE_DROP_SELECTIVE};
    s[S_STAT1] = (struct ds_saved){{NULL, DS_F32, 2, {stats, b->N}}, DS_SAVE_DROP_FULL};
    s[S_QKV] = (struct ds_saved){{NULL, dt, 3, {B, T, b->qkv_width}}, DS_SAVE_DROP_FULL};
    s[S_ATT] = (struct ds_saved){{NULL, dt, 3, {B, T, b->att_width}}, DS_SAVE_DROP_SELECTIVE};
    s[S_LSE] = (struct ds_saved){{NULL, DS_F32, 3, {B, b->c.n_head, T}}, DS_SAVE_DROP_SELECTIVE};
    s[S_MID] = (struct ds_saved){{NULL, dt, 3, {B, T, C}}, DS_SAVE_DROP_FULL};
    s[S_NORM2] = s[S_NORM1];
    s[S_STAT2] = s[S_STAT1];
    s[S_FC] = (struct ds_saved){{NULL, dt, 3, {B, T, b->fc_width}}, DS_SAVE_DROP_FULL};
    s[S_ACT] = (struct ds_saved){{NULL, dt, 3, {B, T, b->c.ffn_dim}}, DS_SAVE_DROP_SELECTIVE};
}

static size_t rows(const struct block *b, int64_t width)
{
    return (size_t)(b->N * width) * ds_dtype_bytes(b->dtype);
}

/* Scratch offsets behind the first own bytes, which the kernels have for themselves. */
static void block_layout(struct block *b, size_t own)
{
    struct ds_saved saved[S_COUNT];
    int64_t C = b->c.n_embd, F = b->c.ffn_dim;
    size_t used = 0, attn;

    saved_list(b, saved);
    scratch_take(&used, own);
    b->sum_at = scratch_take(&used, rows(b, C));
    b->forward_bytes[0] = used;
    for (int s = 0; s < S_COUNT; s++)
        b->eval_at[s] = scratch_take(&used, tensor_bytes(&saved[s].t));
    b->forward_bytes[1] = used;

    used = 0;
    scratch_take(&used, own);
    b->mid_grad_at = scratch_take(&used, rows(b, C));
    b->mask_at = scratch_take(&used, b->c.resid_dropout > 0 ? rows(b, C) : 0);
    b->norm_grad_at = scratch_take(&used, rows(b, C));
    attn = used; /* the halves follow each other and share what is left */
    b->att_grad_at = scratch_take(&attn, rows(b, b->att_width));
    b->qkv_grad_at = scratch_take(&attn, rows(b, b->qkv_width));
    b->act_grad_at = scratch_take(&used, rows(b, F));
    b->fc_grad_at = scratch_take(&used, b->c.form == MODEL_LLAMA ? rows(b, 2 * F) : 0);
    b->backward_bytes = scratch_max(used, attn);
}

/* Plans and layout; with plans NULL the products' scratch is left out. */
static int block_init(struct block *b, const struct ds_site *site, const struct kernels *k,
                      struct ds_plans *plans, int64_t B, int64_t T, struct err *err)
{
    struct ds_call training = {.mode = DS_TRAIN};
    struct ds_attention a;
    size_t own;

    block_setup(b, site, B, T);
    a = block_attention(b, &training);
    own = scratch_max(k->norm_bwd_work(b->N, b->c.n_embd), k->attention_work(&a, b->dtype));
    if (linear_init(&b->qkv, b->name, k, plans, 1, &own, err) < 0 ||
        linear_init(&b->out, b->name, k, plans, 1, &own, err) < 0 ||
        linear_init(&b->fc, b->name, k, plans, 1, &own, err) < 0 ||
        linear_init(&b->proj, b->name, k, plans, 1, &own, err) < 0)
        return -1;
    block_layout(b, own);
    return 0;
}

static int block_memory(const struct ds_site *site, const struct kernels *k, struct ds_plans *plans,
                        int64_t B, int64_t T, struct ds_memory *out, struct err *err)
{
    struct block b;

    if (block_init(&b, site, k, plans, B, T, err) < 0)
        return -1;
    *out = (struct ds_memory){.nsaved = S_COUNT, .kv_heads = b.c.n_kv_head, .kv_dim = b.c.head_dim};
    saved_list(&b, out->saved);
    out->work[DS_TRAIN] = scratch_max(b.forward_bytes[0], b.backward_bytes);
    out->work[DS_RECOMPUTE] = out->work[DS_TRAIN];
    out->work[DS_EVAL] = out->work[DS_DECODE] = b.forward_bytes[1];
    return 0;
}

static int64_t block_flops(const struct ds_site *site, int64_t B, int64_t T)
{
    struct block b;
    int64_t weights;

    block_setup(&b, site, B, T);
    weights = b.c.n_embd * (b.qkv_width + b.att_width + b.fc_width + b.c.ffn_dim);
    return 2 * b.N * weights + 2 * b.N * T * b.att_width; /* a causal half of two T x T products */
}

static int block_create(void **state, const struct ds_site *site, const struct kernels *k,
                        struct ds_plans *plans, int64_t B, int64_t T, struct err *err)
{
    struct block *b = xmalloc(sizeof *b);

    if (block_init(b, site, k, plans, B, T, err) < 0) {
        free(b);
        return -1;
    }
    *state = b;
    return 0;
}

/* ---- what the halves share ---- */

const void *block_w(const struct block *b, const struct ds_call *c, enum block_param p)
{
    return b->at[p] < 0 ? NULL : c->w[b->at[p]];
}

struct ds_grad *block_g(const struct block *b, const struct ds_call *c, enum block_param p)
{
    return b->at[p] < 0 || !(c->want & DS_WANT_DW) ? NULL : &c->g[b->at[p]];
}

void *block_act(const struct block *b, const struct ds_call *c, enum block_saved s)
{
    if (c->mode == DS_TRAIN || c->mode == DS_RECOMPUTE)
        return c->saved[s];
    return scratch_at(c->work, b->eval_at[s]);
}

struct ds_dropout block_mask(const struct block *b, const struct ds_call *c, double p,
                             uint32_t site)
{
    int on = c->mode == DS_TRAIN || c->mode == DS_RECOMPUTE;

    return (struct ds_dropout){on ? (float)p : 0, site, b->seed,
                               c->batch ? c->batch->sample : NULL};
}

/* ---- running ---- */

static int block_forward(void *state, struct ds_call *c, struct err *err)
{
    return attn_forward(state, c, err) < 0 ? -1 : mlp_forward(state, c, err);
}

static int block_backward(void *state, struct ds_call *c, struct err *err)
{
    const struct block *b = state;
    void *dx = c->want & DS_WANT_DX ? c->dx->data : scratch_at(c->work, b->mid_grad_at);

    if (grads_are_f32(b->name, c, b->nparams, err) < 0 || mlp_backward(b, c, dx, err) < 0)
        return -1;
    return attn_backward(b, c, dx, err);
}

static int block_restore(void *state, struct ds_call *c, struct err *err)
{
    (void)err;
    attn_restore(state, c);
    mlp_restore(state, c);
    return 0;
}

const struct ds_layer_ops layer_block = {
    .type = "block",
    .abi = DS_LAYER_ABI,
    .caps = DS_CAP_DECODE,
    .settings = model_settings,
    .nsettings = MODEL_NSETTINGS,
    .config_bytes = sizeof(struct model_config),
    .check = config_check_input,
    .params = block_params,
    .shapes = block_shapes,
    .memory = block_memory,
    .flops = block_flops,
    .create = block_create,
    .destroy = free,
    .forward = block_forward,
    .backward = block_backward,
    .restore = block_restore,
};
