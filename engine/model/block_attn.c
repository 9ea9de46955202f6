/* The attention half of a block: mid = x + dropout(attention(norm1(x) Wqkv) Wout).
 *
 * qkv is one packed row per token. Rotary positions are applied in place, so backward turns the
 * gradient back before it goes through Wqkv.
 */
#include "engine/model/block.h"

#include "engine/base/job.h"
#include "engine/ops/scratch.h"

#include <math.h>

struct ds_attention block_attention(const struct block *b, const struct ds_call *c)
{
    return (struct ds_attention){.B = b->B,
                                 .T = b->T,
                                 .H = b->c.n_head,
                                 .G = b->c.n_kv_head,
                                 .D = b->c.head_dim,
                                 .scale = 1 / sqrtf((float)b->c.head_dim),
                                 .doc = c->batch ? c->batch->doc : NULL,
                                 .dropout = block_mask(b, c, b->c.attn_dropout, b->attn_site)};
}

static void rope(const struct block *b, const struct ds_call *c, void *qkv, int inverse)
{
    if (b->c.form == MODEL_LLAMA)
        c->k->rope(qkv, c->batch->pos, b->N, b->c.n_head, b->c.n_kv_head, b->c.head_dim,
                   (float)b->c.rope_theta, inverse, b->dtype, c->stream);
}

static void norm(const struct block *b, struct ds_call *c)
{
    norm_forward(&b->norm1, c, block_act(b, c, S_NORM1), block_act(b, c, S_STAT1), c->x->data,
                 block_w(b, c, P_NORM1), block_w(b, c, P_NORM1_BIAS));
}

/* What all but decoding does between the two products. */
static void core(const struct block *b, struct ds_call *c)
{
    struct ds_attention a = block_attention(b, c);

    c->k->attention_fwd(block_act(b, c, S_ATT), block_act(b, c, S_LSE), block_act(b, c, S_QKV), &a, b->dtype,
                        c->work, c->stream);
}

static void core_decode(const struct block *b, struct ds_call *c)
{
    struct ds_attention a = block_attention(b, c);

    c->k->attention_kv(block_act(b, c, S_ATT), block_act(b, c, S_QKV), &a, c->kv, b->dtype, c->work, c->stream);
}

void attn_restore(const struct block *b, struct ds_call *c)
{
    norm(b, c);
    core(b, c);
}

int attn_forward(const struct block *b, struct ds_call *c, struct err *err)
{
    struct ds_dropout mask = block_mask(b, c, b->c.resid_dropout, b->out_site);
    void *qkv = block_act(b, c, S_QKV), *att = block_act(b, c, S_ATT);
    void *sum = scratch_at(c->work, b->sum_at);

    norm(b, c);
    if (linear_forward(&b->qkv, c, qkv, block_act(b, c, S_NORM1), block_w(b, c, P_QKV),
                       block_w(b, c, P_QKV_BIAS), c->work, err) < 0)
        return -1;
    rope(b, c, qkv, 0);
    if (c->mode == DS_DECODE)
        core_decode(b, c);
    else
        core(b, c);
    if (linear_forward(&b->out, c, sum, att, block_w(b, c, P_OUT), block_w(b, c, P_OUT_BIAS),
                       c->work, err) < 0)
        return -1;
    c->k->dropout_add_fwd(block_act(b, c, S_MID), sum, c->x->data, b->B, b->T, b->c.n_embd, &mask,
                          b->dtype, c->stream);
    return 0;
}

/* From the gradient of what the half adds to the residual to that of qkv. */
static int backward_to_qkv(const struct block *b, struct ds_call *c, const void *dsum, void *dqkv,
                           struct err *err)
{
    struct ds_attention a = block_attention(b, c);
    void *datt = scratch_at(c->work, b->att_grad_at);
    void *att = block_act(b, c, S_ATT), *qkv = block_act(b, c, S_QKV);

    if ((c->want & DS_WANT_DW) && linear_dw(&b->out, c, block_g(b, c, P_OUT),
                                            block_g(b, c, P_OUT_BIAS), att, dsum, c->work, err) < 0)
        return -1;
    if (linear_dx(&b->out, c, datt, dsum, block_w(b, c, P_OUT), c->work, err) < 0)
        return -1;
    c->k->attention_bwd(dqkv, datt, qkv, att, block_act(b, c, S_LSE), &a, b->dtype, c->work,
                        c->stream);
    rope(b, c, dqkv, 1);
    return 0;
}

int attn_backward(const struct block *b, struct ds_call *c, void *dx, struct err *err)
{
    struct ds_dropout mask = block_mask(b, c, b->c.resid_dropout, b->out_site);
    void *dqkv = scratch_at(c->work, b->qkv_grad_at), *dnorm = scratch_at(c->work, b->norm_grad_at);
    const void *dsum = dx;

    if (mask.p > 0) {
        void *masked = scratch_at(c->work, b->mask_at);

        c->k->dropout_bwd(masked, dx, b->B, b->T, b->c.n_embd, &mask, b->dtype, c->stream);
        dsum = masked;
    }
    if (backward_to_qkv(b, c, dsum, dqkv, err) < 0)
        return -1;
    if ((c->want & DS_WANT_DW) &&
        linear_dw(&b->qkv, c, block_g(b, c, P_QKV), block_g(b, c, P_QKV_BIAS),
                  block_act(b, c, S_NORM1), dqkv, c->work, err) < 0)
        return -1;
    if (linear_dx(&b->qkv, c, dnorm, dqkv, block_w(b, c, P_QKV), c->work, err) < 0)
        return -1;
    norm_backward(&b->norm1, c, dx, 1, block_g(b, c, P_NORM1), block_g(b, c, P_NORM1_BIAS), dnorm,
                  c->x->data, block_act(b, c, S_STAT1), block_w(b, c, P_NORM1), c->work);
    return 0;
}
