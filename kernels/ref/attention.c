/* Attention: the reference. Works on one query at a time; the row of probabilities is made anew in
 * backward. */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

/* Element 0 of part (0 q, 1 k, 2 v) of token t of sample b for query head h; the row is (H + 2G, D)
 */
static int64_t head_at(const struct ds_attention *a, int64_t b, int64_t t, int64_t h, int part)
{
    int64_t g = h / (a->H / a->G), row = (b * a->T + t) * (a->H + 2 * a->G);

    return (row + (part == 0 ? h : part == 1 ? a->H + g : a->H + a->G + g)) * a->D;
}

static double dot(const double *x, const double *y, int64_t n)
{
    double s = 0.0;

    for (int64_t i = 0; i < n; i++)
        s += x[i] * y[i];
    return s;
}

static int64_t first_key(const struct ds_attention *a, int64_t b, int64_t i)
{
    return a->doc ? a->doc[b * a->T + i] : 0;
}

/* log sum exp of the scaled scores of query i */
static double log_sum(const double *qkv, const struct ds_attention *a, int64_t b, int64_t h,
                      int64_t i)
{
    const double *q = qkv + head_at(a, b, i, h, 0);
    double max = -INFINITY, sum = 0.0;

    for (int64_t j = first_key(a, b, i); j <= i; j++)
        max = fmax(max, a->scale * dot(q, qkv + head_at(a, b, j, h, 1), a->D));
    for (int64_t j = first_key(a, b, i); j <= i; j++)
        sum += exp(a->scale * dot(q, qkv + head_at(a, b, j, h, 1), a->D) - max);
    return max + log(sum);
}

static double factor(const struct ds_attention *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return ref_dropout_factor(&a->dropout, b, a->dropout.site + (uint32_t)h,
                              (uint64_t)(i * a->T + j));
}

static void query_fwd(double *out, double *lse, const double *qkv, const struct ds_attention *a,
                      int64_t b, int64_t h, int64_t i)
{
    double *o = out + ((b * a->T + i) * a->H + h) * a->D, l = log_sum(qkv, a, b, h, i);
    const double *q = qkv + head_at(a, b, i, h, 0);

    memset(o, 0, (size_t)a->D * sizeof *o);
    for (int64_t j = first_key(a, b, i); j <= i; j++) {
        const double *k = qkv + head_at(a, b, j, h, 1), *v = qkv + head_at(a, b, j, h, 2);
        double p = exp(a->scale * dot(q, k, a->D) - l) * factor(a, b, h, i, j);

        for (int64_t d = 0; d < a->D; d++)
            o[d] += p * v[d];
    }
    lse[(b * a->H + h) * a->T + i] = l;
}

void ref_attention_fwd(double *out, double *lse, const double *qkv, const struct ds_attention *a)
{
    for (int64_t b = 0; b < a->B; b++)
        for (int64_t h = 0; h < a->H; h++)
            for (int64_t i = 0; i < a->T; i++)
                query_fwd(out, lse, qkv, a, b, h, i);
}

/* With p the probabilities, f the dropout factors, dp_j = f_j (dout . v_j) and m = sum_j p_j dp_j:
 * the gradient of score j is p_j (dp_j - m). */
static void query_bwd(double *dqkv, const double *dout, const double *qkv,
                      const struct ds_attention *a, int64_t b, int64_t h, int64_t i)
{
    const double *q = qkv + head_at(a, b, i, h, 0), *g = dout + ((b * a->T + i) * a->H + h) * a->D;
    double *dq = dqkv + head_at(a, b, i, h, 0), l = log_sum(qkv, a, b, h, i), m = 0.0;

    for (int64_t j = first_key(a, b, i); j <= i; j++) {
        const double *k = qkv + head_at(a, b, j, h, 1), *v = qkv + head_at(a, b, j, h, 2);

        m += exp(a->scale * dot(q, k, a->D) - l) * factor(a, b, h, i, j) * dot(g, v, a->D);
    }
    for (int64_t j = first_key(a, b, i); j <= i; j++) {
        const double *k = qkv + head_at(a, b, j, h, 1), *v = qkv + head_at(a, b, j, h, 2);
        double *dk = dqkv + head_at(a, b, j, h, 1), *dv = dqkv + head_at(a, b, j, h, 2);
        double p = exp(a->scale * dot(q, k, a->D) - l), f = factor(a, b, h, i, j);
        double ds = p * (f * dot(g, v, a->D) - m) * a->scale;

        for (int64_t d = 0; d < a->D; d++) {
            dq[d] += ds * k[d];
            dk[d] += ds * q[d];
            dv[d] += p * f * g[d];
        }
    }
}

void ref_attention_bwd(double *dqkv, const double *dout, const double *qkv,
                       const struct ds_attention *a)
{
    memset(dqkv, 0, (size_t)(a->B * a->T * (a->H + 2 * a->G) * a->D) * sizeof *dqkv);
    for (int64_t b = 0; b < a->B; b++)
        for (int64_t h = 0; h < a->H; h++)
            for (int64_t i = 0; i < a->T; i++)
                query_bwd(dqkv, dout, qkv, a, b, h, i);
}
