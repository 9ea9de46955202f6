/* LayerNorm (weight and bias) or RMSNorm (weight) over the rows of (N, C), by one switch. */
#ifndef DS_OPS_NORM_H
#define DS_OPS_NORM_H

#include "engine/layer.h"

struct norm {
    int64_t N, C;
    int rms;
    float eps;
    enum ds_dtype dtype;
};

/* Rows of the (norm_stats(), N) fp32 array that forward leaves for backward. */
static inline int norm_stats(const struct norm *n)
{
    return n->rms ? 1 : 2;
}

/* b is not read by RMSNorm. */
void norm_forward(const struct norm *n, const struct ds_call *c, void *y, float *stats,
                  const void *x, const void *w, const void *b);

/* dx (NULL: not wanted) is set, or added to when add. gw and gb (NULL with RMSNorm) where DW is
 * wanted and their data is not NULL. work: k->norm_bwd_work(N, C) bytes. */
void norm_backward(const struct norm *n, const struct ds_call *c, void *dx, int add,
                   struct ds_grad *gw, struct ds_grad *gb, const void *dy, const void *x,
                   const float *stats, const void *w, void *work);

#endif
