/* The built-in layers' settings: the table, the automatic values, and what fits together. */
#include "engine/model/config.h"

#include "engine/base/job.h"

#include <math.h>
#include <stddef.h>

#define ROW(key, type, field, def, range, unit, help)                               \
    {                                                                               \
        "model." key, type, offsetof(struct model_config, field), def, range, unit, \
            SETTING_IDENTITY, help                                                  \
    }

const struct setting model_settings[MODEL_NSETTINGS] = {
    ROW("form", SETTING_ENUM, form, "gpt2", "gpt2|llama", "",
        "gpt2: LayerNorm, learned positions, GELU, biases; llama: RMSNorm, RoPE, SwiGLU"),
    ROW("n_layer", SETTING_INT, n_layer, "12", "1..1000", "", "decoder blocks, unless layers says"),
    ROW("n_head", SETTING_INT, n_head, "12", "1..1024", "", "query heads"),
    ROW("n_kv_head", SETTING_INT, n_kv_head, "0", "0..1024", "",
        "key and value heads, a divisor of n_head; 0: n_head"),
    ROW("n_embd", SETTING_INT, n_embd, "768", "1..1048576", "", "width of the residual stream"),
    ROW("head_dim", SETTING_INT, head_dim, "0", "0..4096", "",
        "width of a head; 0: n_embd / n_head"),
    ROW("ffn_dim", SETTING_INT, ffn_dim, "0", "0..8388608", "",
        "width of the feed-forward; 0: 4 n_embd (gpt2), 8/3 n_embd up to a multiple of 64 (llama)"),
    ROW("vocab_size", SETTING_INT, vocab_size, "0", "0..2000000000", "tokens",
        "0: what the data needs"),
    ROW("n_positions", SETTING_INT, n_positions, "0", "0..100000000", "tokens",
        "longest sample where positions are learned; 0: data.seq_len"),
    ROW("norm_eps", SETTING_F64, norm_eps, "1e-5", "(0..1", "", "added to the variance in norms"),
    ROW("rope_theta", SETTING_F64, rope_theta, "10000", "(0..1e12", "",
        "base of the rotary position angles"),
    ROW("tie_embedding", SETTING_ENUM, tie_embedding, "auto", "auto|true|false", "",
        "head and embedding share one matrix; auto: in form gpt2"),
    ROW("bias", SETTING_ENUM, bias, "auto", "auto|true|false", "",
        "biases of the blocks' matrix products; auto: in form gpt2"),
    ROW("embd_dropout", SETTING_F64, embd_dropout, "0", "0..1)", "", "dropout of embeddings"),
    ROW("attn_dropout", SETTING_F64, attn_dropout, "0", "0..1)", "",
        "dropout of attention probabilities"),
    ROW("resid_dropout", SETTING_F64, resid_dropout, "0", "0..1)", "",
        "dropout of what a block adds to the residual stream"),
    ROW("init_std", SETTING_F64, init_std, "0.02", "0..10", "",
        "standard deviation of initial weights; residual products: over sqrt(2 blocks)"),
};

static int choose(int choice, int automatic)
{
    if (choice == CHOICE_AUTO)
        return automatic ? CHOICE_YES : CHOICE_NO;
    return choice;
}

void config_resolve(const struct ds_site *site, struct model_config *out)
{
    int gpt2;

    *out = *(const struct model_config *)site->config;
    gpt2 = out->form == MODEL_GPT2;
    if (!out->n_kv_head)
        out->n_kv_head = out->n_head;
    if (!out->head_dim)
        out->head_dim = out->n_embd / out->n_head;
    if (!out->ffn_dim)
        out->ffn_dim = gpt2 ? 4 * out->n_embd : (8 * out->n_embd + 3 * 64 - 1) / (3 * 64) * 64;
    out->tie_embedding = choose(out->tie_embedding, gpt2);
    out->bias = choose(out->bias, gpt2);
}

int config_check(const struct ds_site *site, struct err *err)
{
    const struct model_config *raw = site->config;
    struct model_config c;

    config_resolve(site, &c);
    if (site->tp_size != 1)
        return err_set(err, ERR_INPUT_LIMIT,
                       "layer %s: the built-in layers do not split over tensor ranks yet: set "
                       "[parallel] tensor = 1",
                       site->name);
    if (!raw->head_dim && c.n_embd % c.n_head)
        return err_set(
            err, ERR_INPUT,
            "[model] n_embd = %lld is not a multiple of n_head = %lld: change one of them, "
            "or set head_dim",
            (long long)c.n_embd, (long long)c.n_head);
    if (c.n_head % c.n_kv_head)
        return err_set(
            err, ERR_INPUT,
            "[model] n_kv_head = %lld does not divide n_head = %lld: each key head serves "
            "the same number of query heads",
            (long long)c.n_kv_head, (long long)c.n_head);
    if (c.form == MODEL_LLAMA && c.head_dim % 2)
        return err_set(err, ERR_INPUT,
                       "[model] head_dim = %lld is odd: rotary positions turn pairs, so it must be "
                       "even (it is n_embd / n_head unless set)",
                       (long long)c.head_dim);
    return 0;
}

struct ds_param config_vector(const char *name, int64_t rows, int kind)
{
    return (struct ds_param){.name = name,
                             .part = {{"", rows}},
                             .nparts = 1,
                             .cols = 1,
                             .unit = 1,
                             .cut = DS_WHOLE,
                             .flags = DS_PARTIAL,
                             .init = {kind, 0}};
}

int config_check_input(const struct ds_site *site, const struct ds_tensor *x, struct err *err)
{
    const struct model_config *c = site->config;

    if (x->ndim == 0)
        return err_set(err, ERR_INPUT,
                       "[model] layers: %s cannot be the first layer: put embedding before it",
                       site->name);
    if (x->ndim != 3 || x->dim[2] != c->n_embd)
        return err_set(
            err, ERR_INPUT,
            "[model] layers: %s takes rows of n_embd = %lld numbers, the layer before it "
            "gives rows of %lld",
            site->name, (long long)c->n_embd, (long long)x->dim[x->ndim - 1]);
    if (x->dtype != site->dtype)
        return err_set(err, ERR_INPUT,
                       "[model] layers: the layer before %s does not give the run's compute type",
                       site->name);
    return config_check(site, err);
}

int config_bias(const struct model_config *c)
{
    return c->bias == CHOICE_YES;
}

double config_residual_std(const struct model_config *c, const struct ds_site *site)
{
    return c->init_std / sqrt(2.0 * site->type_count);
}
