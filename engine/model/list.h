/* The text of [model] layers: which layer types, in which order, and the registry of types. */
#ifndef DS_MODEL_LIST_H
#define DS_MODEL_LIST_H

#include "engine/layer.h"

/* Parses "embedding, block*12, norm, head" into one entry a layer; where opens the error. *list
 * owned by the caller. Returns the number of layers or -1. */
int list_parse(const char *text, const char *where, const struct ds_layer_ops ***list,
               struct err *err);

#endif
