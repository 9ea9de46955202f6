/* Laying out a layer's scratch: offsets within c->work, 64-byte aligned. */
#ifndef DS_OPS_SCRATCH_H
#define DS_OPS_SCRATCH_H

#include "kernels/kernels.h"

/* Takes bytes off the end of a block of *used bytes so far; returns their offset. */
static inline size_t scratch_take(size_t *used, size_t bytes)
{
    size_t at = *used;

    *used = at + ((bytes + 63) & ~(size_t)63);
    return at;
}

static inline void *scratch_at(void *work, size_t offset)
{
    return (char *)work + offset;
}

static inline size_t scratch_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

#endif
