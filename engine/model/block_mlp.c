/* The feed-forward half of a block: y = mid + dropout(act(norm2(mid) Wfc) Wproj), act being GELU
 * or, with gate and up side by side in fc, silu(gate) * up. */
#include "engine/model/block.h"

#include "engine/base/job.h"
#include "engine/ops/scratch.h"

static void activate(const struct block *b, struct ds_call *c)
{
    void *act = block_act(b, c, S_ACT);
    const void *fc = block_act(b, c, S_FC);

    if (b->c.form == MODEL_LLAMA)
        c->k->swiglu_fwd(act, fc, b->N, b->c.ffn_dim, b->dtype, c->stream);
    else
        c->k->gelu_fwd(act, fc, b->N * b->c.ffn_dim, b->dtype, c->stream);
}

static void norm(const struct block *b, struct ds_call *c)
{
    norm_forward(&b->norm2, c, block_act(b, c, S_NORM2), block_act(b, c, S_STAT2),
                 block_act(b, c, S_MID), block_w(b, c, P_NORM2), block_w(b, c, P_NORM2_BIAS));
}

void mlp_restore(const struct block *b, struct ds_call *c)
{
    norm(b, c);
    activate(b, c);
}

int mlp_forward(const struct block *b, struct ds_call *c, struct err *err)
{
    struct ds_dropout mask = block_mask(b, c, b->c.resid_dropout, b->proj_site);
    void *sum = scratch_at(c->work, b->sum_at);

    norm(b, c);
    if (linear_forward(&b->fc, c, block_act(b, c, S_FC), block_act(b, c, S_NORM2),
                       block_w(b, c, P_FC), block_w(b, c, P_FC_BIAS), c->work, err) < 0)
        return -1;
    activate(b, c);
    if (linear_forward(&b->proj, c, sum, block_act(b, c, S_ACT), block_w(b, c, P_PROJ),
                       block_w(b, c, P_PROJ_BIAS), c->work, err) < 0)
        return -1;
    c->k->dropout_add_fwd(c->y->data, sum, block_act(b, c, S_MID), b->B, b->T, b->c.n_embd, &mask,
                          b->dtype, c->stream);
    return 0;
}

/* The gradient of fc from that of what the half adds to the residual. */
static int backward_to_fc(const struct block *b, struct ds_call *c, const void *dsum, void **dfc,
                          struct err *err)
{
    void *dact = scratch_at(c->work, b->act_grad_at), *fc = block_act(b, c, S_FC);

    if ((c->want & DS_WANT_DW) &&
        linear_dw(&b->proj, c, block_g(b, c, P_PROJ), block_g(b, c, P_PROJ_BIAS),
                  block_act(b, c, S_ACT), dsum, c->work, err) < 0)
        return -1;
    if (linear_dx(&b->proj, c, dact, dsum, block_w(b, c, P_PROJ), c->work, err) < 0)
        return -1;
    if (b->c.form == MODEL_LLAMA) {
        *dfc = scratch_at(c->work, b->fc_grad_at);
        c->k->swiglu_bwd(*dfc, dact, fc, b->N, b->c.ffn_dim, b->dtype, c->stream);
    } else {
        *dfc = dact;
        c->k->gelu_bwd(dact, dact, fc, b->N * b->c.ffn_dim, b->dtype, c->stream);
    }
    return 0;
}

int mlp_backward(const struct block *b, struct ds_call *c, void *dmid, struct err *err)
{
    struct ds_dropout mask = block_mask(b, c, b->c.resid_dropout, b->proj_site);
    const void *dsum = c->dy->data;
    void *dnorm = scratch_at(c->work, b->norm_grad_at), *dfc;

    if (mask.p > 0) {
        void *masked = scratch_at(c->work, b->mask_at);

        c->k->dropout_bwd(masked, dsum, b->B, b->T, b->c.n_embd, &mask, b->dtype, c->stream);
        dsum = masked;
    }
    if (backward_to_fc(b, c, dsum, &dfc, err) < 0)
        return -1;
    if ((c->want & DS_WANT_DW) &&
        linear_dw(&b->fc, c, block_g(b, c, P_FC), block_g(b, c, P_FC_BIAS),
                  block_act(b, c, S_NORM2), dfc, c->work, err) < 0)
        return -1;
    if (linear_dx(&b->fc, c, dnorm, dfc, block_w(b, c, P_FC), c->work, err) < 0)
        return -1;
    /* the residual's own gradient, to which the norm's is added */
    c->k->cast(dmid, b->dtype, c->dy->data, b->dtype, b->N * b->c.n_embd, c->stream);
    norm_backward(&b->norm2, c, dmid, 1, block_g(b, c, P_NORM2), block_g(b, c, P_NORM2_BIAS), dnorm,
                  block_act(b, c, S_MID), block_act(b, c, S_STAT2), block_w(b, c, P_NORM2),
                  c->work);
    return 0;
}
