/* Matrix product: the reference. */
#include "kernels/ref/ref.h"

static int64_t or_dense(int64_t stride, int64_t dense)
{
    return stride ? stride : dense;
}

void ref_matmul(double *c, const double *a, const double *b, const double *bias, double beta,
                const struct ds_matmul *w)
{
    int64_t lda = or_dense(w->lda, w->ta ? w->m : w->k),
            ldb = or_dense(w->ldb, w->tb ? w->k : w->n);
    int64_t ldc = or_dense(w->ldc, w->n);
    int64_t sa = or_dense(w->stride_a, lda * (w->ta ? w->k : w->m));
    int64_t sb = or_dense(w->stride_b, ldb * (w->tb ? w->n : w->k));
    int64_t sc = or_dense(w->stride_c, ldc * w->m);

    for (int64_t x = 0; x < w->batch; x++)
        for (int64_t i = 0; i < w->m; i++)
            for (int64_t j = 0; j < w->n; j++) {
                double s = bias ? bias[j] : 0.0, *to = &c[x * sc + i * ldc + j];

                for (int64_t k = 0; k < w->k; k++)
                    s += a[x * sa + (w->ta ? k * lda + i : i * lda + k)] *
                         b[x * sb + (w->tb ? j * ldb + k : k * ldb + j)];
                *to = beta == 0.0 ? s : s + beta * *to;
            }
}
