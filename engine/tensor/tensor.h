/* A view of an array: pointer, type, shape. Row-major and dense; owns nothing. */
#ifndef DS_TENSOR_H
#define DS_TENSOR_H

#include "kernels/kernels.h"

struct ds_tensor {
    void *data;
    enum ds_dtype dtype;
    int ndim;
    int64_t dim[4];
};

int64_t tensor_numel(const struct ds_tensor *t);
size_t tensor_bytes(const struct ds_tensor *t);

/* An arena: one block that gives every tensor of a step the same address each step. With a NULL
 * base it only measures (peak). */
struct arena {
    char *base;
    size_t size, used, peak;
};
void *arena_take(struct arena *a, size_t bytes); /* 64-byte aligned; NULL when it does not fit */

#endif
