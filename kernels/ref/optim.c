/* AdamW, sum of squares, reduction, stored values: the reference. */
#include <math.h>

#include "kernels/ref/ref.h"

void ref_adamw(double *w, double *m, double *v, const double *g, int64_t n, double lr_mul,
               double beta1, double beta2, double eps, double decay, int adamw,
               const struct ds_scalars *s)
{
    double lr = (double)s->lr * lr_mul, fix1 = 1.0 - pow(beta1, (double)s->update);
    double fix2 = 1.0 - pow(beta2, (double)s->update);

    for (int64_t i = 0; !s->skip && i < n; i++) {
        double d = g[i] * (double)s->grad_scale + (adamw ? 0.0 : decay * w[i]);

        if (adamw)
            w[i] -= lr * decay * w[i];
        m[i] = beta1 * m[i] + (1.0 - beta1) * d;
        v[i] = beta2 * v[i] + (1.0 - beta2) * d * d;
        w[i] -= lr * (m[i] / fix1) / (sqrt(v[i] / fix2) + eps);
    }
}

double ref_sumsq(const double *g, int64_t n)
{
    double s = 0.0;

    for (int64_t i = 0; i < n; i++)
        s += g[i] * g[i];
    return s;
}

void ref_reduce(double *y, const double *const *src, int nsrc, int64_t n, int op)
{
    for (int64_t i = 0; i < n; i++) {
        double s = src[0][i];

        for (int k = 1; k < nsrc; k++)
            s = op ? (src[k][i] > s ? src[k][i] : s) : s + src[k][i];
        y[i] = s;
    }
}

/* Rounds to a number of `bits` significant bits whose exponent is at least `least`; above `most` it
 * is infinite. The default rounding mode makes rint nearest even. */
static double rounded(double x, int bits, int least, double most)
{
    int e;

    if (x == 0.0 || !isfinite(x))
        return x;
    frexp(x, &e); /* |x| in [2^(e-1), 2^e) */
    e = (e - 1 < least ? least : e - 1) - (bits - 1);
    x = ldexp(rint(ldexp(x, -e)), e);
    return fabs(x) > most ? copysign(INFINITY, x) : x;
}

double ref_stored(double x, enum ds_dtype t)
{
    switch (t) {
    case DS_F32:
        return rounded(x, 24, -126, 3.4028234663852886e38);
    case DS_BF16:
        return rounded(x, 8, -126, 3.3895313892515355e38);
    case DS_F16:
        return rounded(x, 11, -14, 65504.0);
    default:
        return x;
    }
}
