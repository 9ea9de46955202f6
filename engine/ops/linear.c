/* Linear maps: which product with which layouts serves forward, dx and dW, and nothing else.
 *
 * With W stored (out, in):  y = x W^T    dx = dy W    dW = dy^T x
 * With W stored (in, out):  y = x W      dx = dy W^T  dW = x^T dy
 */
#include "engine/ops/linear.h"

#include "engine/ops/scratch.h"

static const struct ds_plan *plan(const char *name, const struct kernels *k, struct ds_plans *plans,
                                  const struct ds_matmul *mm, size_t *work, struct err *err)
{
    char why[256] = "";
    size_t bytes = 0;
    const struct ds_plan *p = k->matmul_plan(plans, mm, &bytes, why);

    if (!p)
        err_set(err, ERR_INPUT_LIMIT,
                "%s: no %s matrix product of (%lld, %lld) by (%lld, %lld) on device %s: %s", name,
                mm->ab == DS_BF16 ? "bf16" : mm->ab == DS_F16 ? "f16" : "f32", (long long)mm->m, (long long)mm->k,
                (long long)mm->k, (long long)mm->n, k->device, why);
    *work = scratch_max(*work, bytes);
    return p;
}

static int plan_backward(struct linear *l, const char *name, const struct kernels *k,
                         struct ds_plans *plans, size_t *work, struct err *err)
{
    int out_in = l->store == LINEAR_OUT_IN;
    struct ds_matmul dx = {.m = l->N,
                           .n = l->in,
                           .k = l->out,
                           .batch = 1,
                           .lda = l->ldy,
                           .tb = !out_in,
                           .ab = l->dtype,
                           .c = l->dtype};
    struct ds_matmul dw = {
        .k = l->N, .batch = 1, .ta = 1, .ab = l->dtype, .c = DS_F32, .accumulate = 1};

    dw.m = out_in ? l->out : l->in;
    dw.n = out_in ? l->in : l->out;
    dw.lda = out_in ? l->ldy : 0;
    dw.ldb = out_in ? 0 : l->ldy;
    l->dx = plan(name, k, plans, &dx, work, err);
    l->dw = l->dx ? plan(name, k, plans, &dw, work, err) : NULL;
    return l->dw ? 0 : -1;
}

int linear_init(struct linear *l, const char *name, const struct kernels *k, struct ds_plans *plans,
                int want_backward, size_t *work, struct err *err)
{
    struct ds_matmul fwd = {.m = l->N,
                            .n = l->out,
                            .k = l->in,
                            .batch = 1,
                            .ldc = l->ldy,
                            .tb = l->store == LINEAR_OUT_IN,
                            .ab = l->dtype,
                            .c = l->ytype,
                            .epilogue = l->bias ? DS_EPI_BIAS : DS_EPI_NONE};

    if (l->bias && want_backward)
        *work = scratch_max(*work, k->norm_bwd_work(l->N, l->out));
    if (!plans)
        return 0;
    l->fwd = plan(name, k, plans, &fwd, work, err);
    if (!l->fwd)
        return -1;
    return want_backward ? plan_backward(l, name, k, plans, work, err) : 0;
}

static int run(const struct ds_plan *p, const struct ds_call *c, const void *a, const void *b,
               void *y, const void *bias, float beta, void *work, struct err *err)
{
    if (c->k->matmul_run(p, a, b, y, bias, beta, work, c->stream) != 0)
        return err_set(err, ERR_JOB_INTERNAL, "a planned matrix product failed on device %s",
                       c->k->device);
    return 0;
}

int linear_forward(const struct linear *l, const struct ds_call *c, void *y, const void *x,
                   const void *w, const void *b, void *work, struct err *err)
{
    return run(l->fwd, c, x, w, y, l->bias ? b : NULL, 0, work, err);
}

int linear_dx(const struct linear *l, const struct ds_call *c, void *dx, const void *dy,
              const void *w, void *work, struct err *err)
{
    return run(l->dx, c, dy, w, dx, NULL, 0, work, err);
}

int linear_dw(const struct linear *l, const struct ds_call *c, struct ds_grad *gw,
              struct ds_grad *gb, const void *x, const void *dy, void *work, struct err *err)
{
    int out_in = l->store == LINEAR_OUT_IN;

    if (gb && gb->data)
        c->k->bias_bwd(gb->data, gb->beta, dy, l->N, l->out, l->dtype, work, c->stream);
    if (!gw->data)
        return 0;
    return run(l->dw, c, out_in ? dy : x, out_in ? x : dy, gw->data, NULL, gw->beta, work, err);
}

int grads_are_f32(const char *name, const struct ds_call *c, int n, struct err *err)
{
    if (!(c->want & DS_WANT_DW))
        return 0;
    for (int i = 0; i < n; i++)
        if (c->g[i].data && c->g[i].dtype != DS_F32)
            return err_set(err, ERR_INPUT_LIMIT,
                           "%s: gradients are made in fp32 only: leave data_types.grad_accum_dtype "
                           "at fp32",
                           name);
    return 0;
}
