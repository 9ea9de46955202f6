/* A model: the list of layers of [model] layers, each with its config, site and declared
 * parameters. */
#ifndef DS_MODEL_H
#define DS_MODEL_H

#include "engine/base/job.h"
#include "engine/layer.h"

#define MODEL_MAX_LAYERS 1024

struct model {
    int n;
    const struct ds_layer_ops **ops; /* [n] */
    struct ds_site *site;            /* [n] name, config owned by the model */
    struct ds_param **param;         /* [n] declared parameters */
    int *nparams;
    int64_t vocab;           /* of the embedding and head, without padding */
    int64_t max_T;           /* longest sample the model takes; 0: no limit */
    struct settings *tables; /* [ntables] the layer types' bound tables; types may share one */
    int ntables;
};

/* Layer types: the built-in ones are there from the start. */
int model_register(const struct ds_layer_ops *ops);
const struct ds_layer_ops *model_find(const char *type);
int model_types(const struct ds_layer_ops *const **list);

/* Builds the list: parses [model] layers ("embedding, block*12, norm, head"), applies the [model]
 * rows to each type's settings (unknown keys are errors with the nearest name), runs check and
 * params. Layers are named TYPE, or TYPE.i where a type occurs more than once. data_vocab (0:
 * unknown) becomes model.vocab_size and [data] seq_len becomes model.n_positions where a layer has
 * that key and the job does not set it. rows may be cleared afterwards. 0, or -1 and one sentence
 * for the user. */
int model_create(struct model **, const struct job *, const struct settings_rows *rows,
                 enum ds_dtype dtype, int64_t data_vocab, struct err *err);
void model_destroy(struct model *); /* NULL is fine */

/* Identity of the model: the layer list and the IDENTITY settings of its types, defaults filled in.
 */
uint64_t model_hash(const struct model *);

/* Floating point operations of one forward over B x T. */
int64_t model_flops(const struct model *, int64_t B, int64_t T);

#endif
