/* The settings that the built-in layers share: one description of a decoder, in two forms.
 *
 * form gpt2: LayerNorm, learned positions, GELU, biases, tied head. form llama: RMSNorm, rotary
 * positions, SwiGLU, grouped-query attention, untied head, no biases.
 */
#ifndef DS_MODEL_CONFIG_H
#define DS_MODEL_CONFIG_H

#include "engine/layer.h"

enum model_choice { CHOICE_AUTO, CHOICE_YES, CHOICE_NO };

struct model_config {
    int form; /* enum model_form */
    int64_t n_layer, n_head, n_kv_head, n_embd, head_dim, ffn_dim, vocab_size, n_positions;
    double norm_eps, rope_theta, init_std;
    double embd_dropout, attn_dropout, resid_dropout;
    int tie_embedding, bias; /* enum model_choice */
};

#define MODEL_NSETTINGS 17
extern const struct setting model_settings[MODEL_NSETTINGS];

/* The site's config with every "automatic" value worked out: no 0 and no CHOICE_AUTO is left but in
 * vocab_size and n_positions, which come from the data. */
void config_resolve(const struct ds_site *site, struct model_config *out);

/* Refuses sizes that do not fit each other and meshes that the layers cannot do. */
int config_check(const struct ds_site *site, struct err *err);

/* x (B, T, n_embd) of the compute type: the input of every built-in layer but the first. */
int config_check_input(const struct ds_site *site, const struct ds_tensor *x, struct err *err);

/* A parameter of so many numbers, whole on every tensor rank; kind: DS_INIT_ONE or DS_INIT_ZERO. */
struct ds_param config_vector(const char *name, int64_t rows, int kind);

/* Biases of the matrix products; the standard deviation of products that add to the residual. */
int config_bias(const struct model_config *c);
double config_residual_std(const struct model_config *c, const struct ds_site *site);

extern const struct ds_layer_ops layer_embedding, layer_block, layer_norm, layer_head;

#endif
