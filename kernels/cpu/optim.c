/* AdamW in one pass over memory, and the sum of squares of a gradient. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec.h"

struct adam {
    float lr, beta1, beta2, eps, decay, grad_scale, fix1,
        fix2; /* fix: 1/(1-beta1^t), 1/sqrt(1-beta2^t) */
    int decoupled;
};

struct arrays {
    float *w2, *m2, *v2;
    const float *w, *m, *v, *g;
    void *out;
};

/* Another generation is written past the caches: reading its old lines first would cost a third
 * more. */
static int may_stream(const struct arrays *a)
{
    uintptr_t all = (uintptr_t)a->w2 | (uintptr_t)a->m2 | (uintptr_t)a->v2;

    return a->w2 != a->w && a->m2 != a->m && a->v2 != a->v && all % sizeof(vf) == 0;
}

INLINE void put(float *p, int64_t i, int64_t hi, vf v, int stream)
{
    if (stream && LIKELY(hi - i >= LANES))
        vf_stream(p + i, v);
    else
        stn(p, i, hi, v, 0);
}

INLINE void adam_span(const struct arrays *a, const struct adam *h, int64_t lo, int64_t hi,
                      int stream, int bf)
{
    for (int64_t i = lo; i < hi; i += LANES) {
        vf w = ldn(a->w, i, hi, 0), g = ldn(a->g, i, hi, 0) * h->grad_scale, m, v;

        if (h->decoupled)
            w -= w * (h->lr * h->decay);
        else
            g += w * h->decay;
        m = ldn(a->m, i, hi, 0);
        m = g + (m - g) * h->beta1;
        v = ldn(a->v, i, hi, 0) * h->beta2 + g * g * (1.0f - h->beta2);
        w -= m * (h->lr * h->fix1) / (vf_sqrt(v) * h->fix2 + h->eps);
        put(a->m2, i, hi, m, stream);
        put(a->v2, i, hi, v, stream);
        put(a->w2, i, hi, w, stream);
        if (a->out)
            stn(a->out, i, hi, w, bf);
    }
}

/* A skipped update: the new generation and the rounded weights are those of the old one. */
INLINE void copy_span(const struct arrays *a, int64_t lo, int64_t hi, int bf)
{
    for (int64_t i = lo; i < hi; i += LANES) {
        vf w = ldn(a->w, i, hi, 0);

        stn(a->m2, i, hi, ldn(a->m, i, hi, 0), 0);
        stn(a->v2, i, hi, ldn(a->v, i, hi, 0), 0);
        stn(a->w2, i, hi, w, 0);
        if (a->out)
            stn(a->out, i, hi, w, bf);
    }
}

void K(adamw)(float *w2, float *m2, float *v2, const float *w, const float *m, const float *v,
              const float *g, void *out, int64_t n, float lr_mul, float beta1, float beta2,
              float eps, float decay, int adamw, const struct ds_scalars *s, enum ds_dtype dt,
              struct ds_stream *queue)
{
    struct arrays a = {w2, m2, v2, w, m, v, g, out};
    struct adam h = {s->lr * lr_mul, beta1, beta2, eps, decay, s->grad_scale, 0.0f, 0.0f, adamw};
    int stream;

    stream = may_stream(&a);
    h.fix1 = (float)(1.0 / (1.0 - pow(beta1, (double)s->update)));
    h.fix2 = (float)(1.0 / sqrt(1.0 - pow(beta2, (double)s->update)));
#pragma omp parallel if (n > TEAM_MIN)
    {
        int64_t lo, hi;

        team_span(n, 1024, &lo, &hi);
        if (s->skip && dt == DS_BF16)
            copy_span(&a, lo, hi, 1);
        else if (s->skip)
            copy_span(&a, lo, hi, 0);
        else if (dt == DS_BF16)
            adam_span(&a, &h, lo, hi, stream, 1);
        else
            adam_span(&a, &h, lo, hi, stream, 0);
        if (stream)
            stream_end();
    }
}

#define SUM_BLOCK 4096
#define SUM_BLOCKS 512 /* block sums held on the stack before they are added in order */

typedef double vd __attribute__((vector_size(4 * LANES)));
typedef float vfh __attribute__((vector_size(2 * LANES)));

static double block_sum(const float *g, int64_t n)
{
    vd s0 = {0}, s1 = {0}, s;
    double sum = 0.0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        vfh h0, h1;

        memcpy(&h0, g + i, sizeof h0);
        memcpy(&h1, g + i + LANES / 2, sizeof h1);
        vd d0 = __builtin_convertvector(h0, vd), d1 = __builtin_convertvector(h1, vd);

        s0 += d0 * d0;
        s1 += d1 * d1;
    }
    s = s0 + s1;
    for (int j = 0; j < LANES / 2; j++)
        sum += s[j];
    for (; i < n; i++)
        sum += (double)g[i] * g[i];
    return sum;
}

void K(sumsq)(double *sum, int32_t *bad, const float *g, int64_t n, struct ds_stream *stream)
{
    double total = 0.0;

    for (int64_t base = 0; base < n; base += (int64_t)SUM_BLOCK * SUM_BLOCKS) {
        int64_t left = n - base, blocks = (left + SUM_BLOCK - 1) / SUM_BLOCK;
        double each[SUM_BLOCKS];

        blocks = blocks < SUM_BLOCKS ? blocks : SUM_BLOCKS;
#pragma omp parallel for schedule(static) if (blocks > 4)
        for (int64_t k = 0; k < blocks; k++) {
            int64_t at0 = k * SUM_BLOCK, len = left - at0 < SUM_BLOCK ? left - at0 : SUM_BLOCK;

            each[k] = block_sum(g + base + at0, len);
        }
        for (int64_t k = 0; k < blocks; k++)
            total += each[k];
    }
    *sum = total;
    if (!isfinite(total)) /* squares of finite floats cannot overflow a double */
        *bad |= 1;
}
