/* The two norms behind one call. A gradient whose beta differs from its neighbour's gets a call of
 * its own: the kernel takes one beta. */
#include "engine/ops/norm.h"

void norm_forward(const struct norm *n, const struct ds_call *c, void *y, float *stats,
                  const void *x, const void *w, const void *b)
{
    if (n->rms)
        c->k->rmsnorm_fwd(y, stats, x, w, n->N, n->C, n->eps, n->dtype, c->stream);
    else
        c->k->layernorm_fwd(y, stats, stats + n->N, x, w, b, n->N, n->C, n->eps, n->dtype,
                            c->stream);
}

void norm_backward(const struct norm *n, const struct ds_call *c, void *dx, int add,
                   struct ds_grad *gw, struct ds_grad *gb, const void *dy, const void *x,
                   const float *stats, const void *w, void *work)
{
    int want = (c->want & DS_WANT_DW) != 0;
    float *dw = want ? gw->data : NULL, *db = want && gb ? gb->data : NULL;
    float beta = dw ? gw->beta : db ? gb->beta : 0;

    if (n->rms) {
        c->k->rmsnorm_bwd(dx, add, dw, beta, dy, x, stats, w, n->N, n->C, n->dtype, work,
                          c->stream);
        return;
    }
    if (dw && db && gb->beta != beta) {
        c->k->layernorm_bwd(NULL, 0, NULL, db, gb->beta, dy, x, stats, stats + n->N, w, n->N, n->C,
                            n->dtype, work, c->stream);
        db = NULL;
    }
    c->k->layernorm_bwd(dx, add, dw, db, beta, dy, x, stats, stats + n->N, w, n->N, n->C, n->dtype,
                        work, c->stream);
}
