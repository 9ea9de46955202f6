/* Views and the arena: see tensor.h. */
#include "engine/tensor/tensor.h"

int64_t tensor_numel(const struct ds_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->ndim; i++)
        n *= t->dim[i];
    return t->ndim ? n : 0;
}

size_t tensor_bytes(const struct ds_tensor *t)
{
    return (size_t)tensor_numel(t) * ds_dtype_bytes(t->dtype);
}

void *arena_take(struct arena *a, size_t bytes)
{
    size_t at = a->used, end = at + ((bytes + 63) & ~(size_t)63);

    if (a->base && end > a->size)
        return NULL;
    a->used = end;
    if (end > a->peak)
        a->peak = end;
    return a->base ? a->base + at : NULL;
}
