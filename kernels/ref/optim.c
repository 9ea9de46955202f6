/* Optimizers, sum of squares, reduction, stored values: the reference. */
#include <math.h>

#include "kernels/ref/ref.h"

void ref_adamw(double *w, double *m, double *v, const double *g, int64_t n, const struct ref_hyper *h,
               const struct ds_scalars *s)
{
    double fix1 = 1.0 - pow(h->beta1, (double)s->update), fix2 = 1.0 - pow(h->beta2, (double)s->update);

    for (int64_t i = 0; !s->skip && i < n; i++) {
        double d = g[i] * (double)s->grad_scale + (h->variant ? 0.0 : h->decay * w[i]);

        if (h->variant)
            w[i] -= h->lr * h->decay * w[i];
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * d;
        v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * d * d;
        w[i] -= h->lr * (m[i] / fix1) / (sqrt(v[i] / fix2) + h->eps);
    }
}

/* Chen et al. 2023, algorithm 2 */
void ref_lion(double *w, double *m, const double *g, int64_t n, const struct ref_hyper *h,
              const struct ds_scalars *s)
{
    for (int64_t i = 0; !s->skip && i < n; i++) {
        double d = g[i] * (double)s->grad_scale, c = h->beta1 * m[i] + (1.0 - h->beta1) * d;

        w[i] -= h->lr * ((c > 0) - (c < 0) + h->decay * w[i]);
        m[i] = h->beta2 * m[i] + (1.0 - h->beta2) * d;
    }
}

void ref_adagrad(double *w, double *v, const double *g, int64_t n, const struct ref_hyper *h,
                 const struct ds_scalars *s)
{
    for (int64_t i = 0; !s->skip && i < n; i++) {
        double d = g[i] * (double)s->grad_scale + h->decay * w[i];

        v[i] += d * d;
        w[i] -= h->lr * d / (sqrt(v[i]) + h->eps);
    }
}

void ref_sgd(double *w, double *m, const double *g, int64_t n, const struct ref_hyper *h,
             const struct ds_scalars *s)
{
    for (int64_t i = 0; !s->skip && i < n; i++) {
        double d = g[i] * (double)s->grad_scale + h->decay * w[i];

        if (m)
            m[i] = s->update > 1 ? h->beta1 * m[i] + d : d;
        w[i] -= h->lr * (!m ? d : h->variant ? d + h->beta1 * m[i] : m[i]);
    }
}

/* You et al. 2020, algorithm 2, with phi the identity; the ratio of one whole tensor, between the bounds */
void ref_lamb(double *w, double *m, double *v, const double *g, int64_t n, const struct ref_hyper *h,
              double min_ratio, double max_ratio, const struct ds_scalars *s)
{
    double fix1 = 1.0 - pow(h->beta1, (double)s->update), fix2 = 1.0 - pow(h->beta2, (double)s->update);
    double ww = 0.0, uu = 0.0, ratio;

    for (int pass = 0; pass < 2 && !s->skip; pass++) {
        ratio = ww > 0 && uu > 0 ? fmin(max_ratio, fmax(min_ratio, sqrt(ww / uu))) : 1.0;
        for (int64_t i = 0; i < n; i++) {
            double d = g[i] * (double)s->grad_scale, u;

            if (pass == 0) {
                m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * d;
                v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * d * d;
            }
            u = (m[i] / fix1) / (sqrt(v[i] / fix2) + h->eps) + h->decay * w[i];
            if (pass == 0) {
                ww += w[i] * w[i];
                uu += u * u;
            } else {
                w[i] -= h->lr * ratio * u;
            }
        }
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
