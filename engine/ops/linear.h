/* A linear map of rows, y (N, out) = x (N, in) W + bias, and its two gradients, as three plans.
 *
 * Column-parallel weights are stored (out, in), row-parallel ones (in, out): a parameter is only
 * ever cut along its first axis.
 */
#ifndef DS_OPS_LINEAR_H
#define DS_OPS_LINEAR_H

#include "engine/base/err.h"
#include "engine/layer.h"

enum linear_store { LINEAR_OUT_IN, LINEAR_IN_OUT };

struct linear {
    int64_t N, in, out;
    enum linear_store store;
    enum ds_dtype dtype;
    int bias;
    int64_t ldy;         /* elements between rows of y and dy; 0: out */
    enum ds_dtype ytype; /* of y; dy has dtype */
    const struct ds_plan *fwd, *dx, *dw;
};

/* Makes the plans (none when plans is NULL) of the map described by the fields above; *work becomes
 * at least the scratch that the calls below need. name is for the error. 0 or -1. */
int linear_init(struct linear *l, const char *name, const struct kernels *k, struct ds_plans *plans,
                int want_backward, size_t *work, struct err *err);

/* y = x W + b; b is ignored unless the map has a bias. */
int linear_forward(const struct linear *l, const struct ds_call *c, void *y, const void *x,
                   const void *w, const void *b, void *work, struct err *err);
/* dx (N, in) = dy W^T */
int linear_dx(const struct linear *l, const struct ds_call *c, void *dx, const void *dy,
              const void *w, void *work, struct err *err);
/* gw = beta gw + its gradient, gb likewise (NULL without a bias); a NULL data pointer: frozen,
 * skipped. */
int linear_dw(const struct linear *l, const struct ds_call *c, struct ds_grad *gw,
              struct ds_grad *gb, const void *x, const void *dy, void *work, struct err *err);

/* Every operator here writes fp32 gradients: -1 when one of the n is wanted in another type. */
int grads_are_f32(const char *name, const struct ds_call *c, int n, struct err *err);

#endif
