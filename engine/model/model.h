/* A model: the list of layers of [model] layers, each with its config, site and declared parameters. */
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
    int64_t vocab;                   /* of the embedding and head, without padding */
    int64_t max_T;                   /* longest sample the model takes; 0: no limit */
};

/* Layer types: the built-in ones are there from the start. */
int model_register(const struct ds_layer_ops *ops);
const struct ds_layer_ops *model_find(const char *type);
int model_types(const struct ds_layer_ops *const **list);

/* Builds the list: parses [model] layers ("embedding, block*12, norm, head"), applies the [model] rows to
 * each type's settings (unknown keys are errors with the nearest name), runs check and params. Layers are
 * named TYPE, or TYPE.i where a type occurs more than once. */
int model_create(struct model **, const struct job *, const struct settings_rows *rows,
                 enum ds_dtype dtype, struct err *err);
void model_destroy(struct model *);

#endif
