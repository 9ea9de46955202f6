/* The first layer: y (B, T, C) = wte[token] (+ wpe[position] in form gpt2), then dropout.
 *
 * Positions count from the beginning of a token's document, so packed documents see what they would
 * see alone.
 */
#include "engine/model/config.h"

#include "engine/base/buf.h"
#include "engine/base/job.h"
#include "engine/base/rng.h"
#include "engine/ops/linear.h"
#include "engine/ops/scratch.h"

#include <stdlib.h>

enum { P_WTE, P_WPE };

struct embedding {
    const char *name;
    int64_t B, T, C, V, positions; /* positions 0: rotary, no table */
    enum ds_dtype dtype;
    float dropout;
    uint32_t site;
    uint64_t seed;
    size_t dy_at; /* in the scratch of backward: dy behind the dropout mask */
};

static int embedding_check(const struct ds_site *site, const struct ds_tensor *x, struct err *err)
{
    const struct model_config *c = site->config;

    if (x->ndim != 0)
        return err_set(err, ERR_INPUT, "[model] layers: embedding must be the first layer, not %s",
                       site->name);
    if (!c->vocab_size)
        return err_set(err, ERR_INPUT,
                       "[model] vocab_size is not set and there is no data to take it from");
    if (c->form == MODEL_GPT2 && !c->n_positions)
        return err_set(err, ERR_INPUT, "[model] n_positions and [data] seq_len are both not set");
    return config_check(site, err);
}

static int embedding_params(const struct ds_site *site, struct ds_param *out, struct err *err)
{
    struct model_config c;
    struct ds_init init = {DS_INIT_NORMAL, 0};

    (void)err;
    config_resolve(site, &c);
    init.scale = c.init_std;
    out[P_WTE] = (struct ds_param){.name = "wte",
                                   .part = {{"", c.vocab_size}},
                                   .nparts = 1,
                                   .cols = c.n_embd,
                                   .unit = 1,
                                   .cut = DS_CUT,
                                   .flags = DS_VOCAB | DS_FWD_ONLY,
                                   .init = init};
    if (c.form != MODEL_GPT2)
        return 1;
    out[P_WPE] = (struct ds_param){.name = "wpe",
                                   .part = {{"", c.n_positions}},
                                   .nparts = 1,
                                   .cols = c.n_embd,
                                   .unit = 1,
                                   .cut = DS_WHOLE,
                                   .flags = DS_PARTIAL | DS_FWD_ONLY,
                                   .init = init};
    return 2;
}

static int embedding_shapes(const struct ds_site *site, int64_t B, int64_t T,
                            const struct ds_tensor *x, struct ds_tensor *y, struct err *err)
{
    const struct model_config *c = site->config;

    (void)x;
    if (c->form == MODEL_GPT2 && T > c->n_positions)
        return err_set(
            err, ERR_INPUT,
            "samples of %lld tokens are longer than [model] n_positions = %lld: raise it, "
            "or lower [data] seq_len",
            (long long)T, (long long)c->n_positions);
    *y = (struct ds_tensor){NULL, site->dtype, 3, {B, T, c->n_embd}};
    return 0;
}

static void embedding_setup(struct embedding *e, const struct ds_site *site, int64_t B, int64_t T)
{
    struct model_config c;
    char *word = xasprintf("%s.dropout", site->name);

    config_resolve(site, &c);
    *e = (struct embedding){.name = site->name,
                            .B = B,
                            .T = T,
                            .C = c.n_embd,
                            .V = c.vocab_size,
                            .dtype = site->dtype,
                            .dropout = (float)c.embd_dropout,
                            .site = rng_site(word),
                            .seed = site->seed};
    e->positions = c.form == MODEL_GPT2 ? c.n_positions : 0;
    free(word);
}

/* Bytes of backward's scratch. */
static size_t embedding_layout(struct embedding *e, const struct kernels *k)
{
    size_t used = 0;

    scratch_take(&used, k->embedding_bwd_work(e->B * e->T, e->V, e->positions));
    if (e->dropout > 0)
        e->dy_at = scratch_take(&used, (size_t)(e->B * e->T * e->C) * ds_dtype_bytes(e->dtype));
    return used;
}

static int embedding_memory(const struct ds_site *site, const struct kernels *k,
                            struct ds_plans *plans, int64_t B, int64_t T, struct ds_memory *out,
                            struct err *err)
{
    struct embedding e;

    (void)plans;
    (void)err;
    embedding_setup(&e, site, B, T);
    *out = (struct ds_memory){.work = {[DS_TRAIN] = embedding_layout(&e, k)}};
    return 0;
}

static int64_t embedding_flops(const struct ds_site *site, int64_t B, int64_t T)
{
    (void)site;
    (void)B;
    (void)T;
    return 0; /* look-ups */
}

static int embedding_create(void **state, const struct ds_site *site, const struct kernels *k,
                            struct ds_plans *plans, int64_t B, int64_t T, struct err *err)
{
    struct embedding *e = xmalloc(sizeof *e);

    (void)plans;
    (void)err;
    embedding_setup(e, site, B, T);
    embedding_layout(e, k);
    *state = e;
    return 0;
}

static struct ds_dropout embedding_mask(const struct embedding *e, const struct ds_call *c)
{
    return (struct ds_dropout){e->dropout, e->site, e->seed, c->batch->sample};
}

static int embedding_forward(void *state, struct ds_call *c, struct err *err)
{
    const struct embedding *e = state;
    struct ds_dropout mask = embedding_mask(e, c);
    void *y = c->y->data;

    (void)err;
    c->k->embedding_fwd(y, c->w[P_WTE], e->positions ? c->w[P_WPE] : NULL, c->batch->token,
                        c->batch->pos, e->B * e->T, e->C, e->dtype, c->stream);
    if (mask.p > 0 && (c->mode == DS_TRAIN || c->mode == DS_RECOMPUTE))
        c->k->dropout_add_fwd(y, y, NULL, e->B, e->T, e->C, &mask, e->dtype, c->stream);
    return 0;
}

static int embedding_backward(void *state, struct ds_call *c, struct err *err)
{
    const struct embedding *e = state;
    struct ds_dropout mask = embedding_mask(e, c);
    const void *dy = c->dy->data;
    struct ds_grad none = {0}, *wte = &c->g[P_WTE], *wpe = e->positions ? &c->g[P_WPE] : &none;

    if (!(c->want & DS_WANT_DW) || (!wte->data && !wpe->data))
        return 0;
    if (grads_are_f32(e->name, c, e->positions ? 2 : 1, err) < 0)
        return -1;
    if (mask.p > 0) {
        void *masked = scratch_at(c->work, e->dy_at);

        c->k->dropout_bwd(masked, dy, e->B, e->T, e->C, &mask, e->dtype, c->stream);
        dy = masked;
    }
    c->k->embedding_bwd(wte->data, wte->beta, wpe->data, wpe->beta, dy, c->batch->token,
                        c->batch->pos, e->B * e->T, e->C, e->V, e->positions, e->dtype, c->work,
                        c->stream);
    return 0;
}

const struct ds_layer_ops layer_embedding = {
    .type = "embedding",
    .abi = DS_LAYER_ABI,
    .caps = DS_CAP_DECODE,
    .settings = model_settings,
    .nsettings = MODEL_NSETTINGS,
    .config_bytes = sizeof(struct model_config),
    .check = embedding_check,
    .params = embedding_params,
    .shapes = embedding_shapes,
    .memory = embedding_memory,
    .flops = embedding_flops,
    .create = embedding_create,
    .destroy = free,
    .forward = embedding_forward,
    .backward = embedding_backward,
};
