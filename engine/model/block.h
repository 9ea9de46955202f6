/* The decoder block's insides, shared by its three files: block.c (what it declares), block_attn.c
 * and block_mlp.c (what it computes). */
#ifndef DS_MODEL_BLOCK_H
#define DS_MODEL_BLOCK_H

#include "engine/model/config.h"
#include "engine/ops/linear.h"
#include "engine/ops/norm.h"

enum block_param {
    P_NORM1,
    P_NORM1_BIAS,
    P_QKV,
    P_QKV_BIAS,
    P_OUT,
    P_OUT_BIAS,
    P_NORM2,
    P_NORM2_BIAS,
    P_FC,
    P_FC_BIAS,
    P_PROJ,
    P_PROJ_BIAS,
    P_COUNT
};

/* What forward leaves for backward, in the order of ds_memory.saved. Rows are N = B*T tokens. */
enum block_saved {
    S_NORM1, /* (N, C) input of qkv; rebuilt from x */
    S_STAT1, /* norm statistics */
    S_QKV,   /* (N, (H+2G) D), positions applied */
    S_ATT,   /* (N, H D) attention's output; rebuilt from qkv, as lse */
    S_LSE,   /* (B, H, T) */
    S_MID,   /* (N, C) residual stream between the halves */
    S_NORM2, /* (N, C) input of fc; rebuilt from mid */
    S_STAT2,
    S_FC,  /* (N, F) before GELU, or (N, 2F): gate, up */
    S_ACT, /* (N, F) input of proj; rebuilt from fc */
    S_COUNT
};

struct block {
    const char *name;
    struct model_config c;
    enum ds_dtype dtype;
    uint64_t seed;
    int64_t B, T, N, qkv_width, att_width, fc_width;
    int8_t at[P_COUNT]; /* place among the declared parameters, -1: this form has none */
    int nparams;
    struct norm norm1, norm2;
    struct linear qkv, out, fc, proj;
    uint32_t attn_site, out_site, proj_site;
    /* Scratch: kernels' own at 0, then these offsets. */
    size_t eval_at[S_COUNT];        /* forward without saved tensors */
    size_t sum_at;                  /* forward: (N, C) what is added to the residual */
    size_t mid_grad_at;             /* backward: (N, C) where dx is not wanted */
    size_t mask_at, norm_grad_at;   /* (N, C) */
    size_t act_grad_at, fc_grad_at; /* (N, F), (N, 2F) */
    size_t att_grad_at, qkv_grad_at;
    size_t forward_bytes[2], backward_bytes; /* forward with and without saved tensors */
};

/* The parameter, its gradient, the saved tensor (or the scratch that stands for it in EVAL and
 * DECODE). */
const void *block_w(const struct block *b, const struct ds_call *c, enum block_param p);
struct ds_grad *block_g(const struct block *b, const struct ds_call *c, enum block_param p);
void *block_act(const struct block *b, const struct ds_call *c, enum block_saved s);

/* Dropout of one site; off unless training. */
struct ds_dropout block_mask(const struct block *b, const struct ds_call *c, double p,
                             uint32_t site);

/* mid = x + attention(norm1(x)) */
int attn_forward(const struct block *b, struct ds_call *c, struct err *err);
/* dx holds d mid and becomes d x. */
int attn_backward(const struct block *b, struct ds_call *c, void *dx, struct err *err);
/* y = mid + mlp(norm2(mid)) */
int mlp_forward(const struct block *b, struct ds_call *c, struct err *err);
/* Sets dmid from c->dy. */
int mlp_backward(const struct block *b, struct ds_call *c, void *dmid, struct err *err);

/* Rebuild what no product with a weight makes. */
void attn_restore(const struct block *b, struct ds_call *c);
void mlp_restore(const struct block *b, struct ds_call *c);

struct ds_attention block_attention(const struct block *b, const struct ds_call *c);

#endif
