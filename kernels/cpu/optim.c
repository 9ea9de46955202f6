/* The optimizers in one pass over memory each, and the sum of squares of a gradient. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec.h"

/* What a step's hyper-parameters come to. fix: 1/(1-beta1^t), 1/sqrt(1-beta2^t). */
struct hyper {
    float lr, beta1, beta2, eps, decay, scale, fix1, fix2, ratio;
    int variant, first, skip;
};

static struct hyper hyper(const struct ds_update *u, const struct ds_scalars *s)
{
    return (struct hyper){
        .lr = s->lr * u->lr_mul, .beta1 = s->beta1, .beta2 = u->beta2, .eps = u->eps,
        .decay = u->decay, .scale = s->grad_scale, .variant = u->variant, .first = s->update <= 1,
        .skip = s->skip,
        .fix1 = (float)(1.0 / (1.0 - pow(s->beta1, (double)s->update))),
        .fix2 = (float)(1.0 / sqrt(1.0 - pow(u->beta2, (double)s->update)))};
}

/* Another generation is written past the caches: reading its old lines first would cost a third
 * more. */
static int may_stream(const struct ds_update *a)
{
    uintptr_t all = (uintptr_t)a->w2 | (uintptr_t)a->m2 | (uintptr_t)a->v2;

    return a->w2 != a->w && (!a->m || a->m2 != a->m) && (!a->v || a->v2 != a->v) &&
           all % sizeof(vf) == 0;
}

INLINE void put(float *p, int64_t i, int64_t hi, vf v, int stream)
{
    if (stream && LIKELY(hi - i >= LANES))
        vf_stream(p + i, v);
    else
        stn(p, i, hi, v, DS_F32);
}

/* An optimizer is the step of LANES elements: new w, m and v from the old ones and g. The ones that it has no
 * array for are zero and are not stored. */
typedef void step_fn(vf *w, vf *m, vf *v, vf g, const struct hyper *h);

INLINE void adamw_step(vf *w, vf *m, vf *v, vf g, const struct hyper *h)
{
    if (h->variant)
        *w -= *w * (h->lr * h->decay);
    else
        g += *w * h->decay;
    *m = g + (*m - g) * h->beta1;
    *v = *v * h->beta2 + g * g * (1.0f - h->beta2);
    *w -= *m * (h->lr * h->fix1) / (vf_sqrt(*v) * h->fix2 + h->eps);
}

INLINE void lion_step(vf *w, vf *m, vf *v, vf g, const struct hyper *h)
{
    vf c = g + (*m - g) * h->beta1, zero = {0}, one = vf_set(1.0f);

    (void)v;
    *w -= *w * (h->lr * h->decay);
    *w -= h->lr * (vf_select(c > zero, one, zero) - vf_select(c < zero, one, zero));
    *m = g + (*m - g) * h->beta2;
}

INLINE void adagrad_step(vf *w, vf *m, vf *v, vf g, const struct hyper *h)
{
    (void)m;
    g += *w * h->decay;
    *v += g * g;
    *w -= h->lr * g / (vf_sqrt(*v) + h->eps);
}

INLINE void sgd_step(vf *w, vf *m, vf *v, vf g, const struct hyper *h)
{
    (void)v;
    g += *w * h->decay;
    *m = h->first ? g : *m * h->beta1 + g;
    *w -= h->lr * (h->variant ? g + *m * h->beta1 : *m);
}

INLINE vf lamb_direction(vf w, vf m, vf v, const struct hyper *h)
{
    return m * h->fix1 / (vf_sqrt(v) * h->fix2 + h->eps) + w * h->decay;
}

INLINE void lamb_step(vf *w, vf *m, vf *v, vf g, const struct hyper *h)
{
    (void)g;
    *w -= lamb_direction(*w, *m, *v, h) * (h->lr * h->ratio);
}

/* A skipped update: the new generation and the rounded weights are those of the old one. */
INLINE void skip_step(vf *w, vf *m, vf *v, vf g, const struct hyper *h)
{
    (void)w, (void)m, (void)v, (void)g, (void)h;
}

INLINE void span(const struct ds_update *a, const struct hyper *h, int64_t lo, int64_t hi, step_fn *step,
                 int has_m, int has_v, int stream)
{
    for (int64_t i = lo; i < hi; i += LANES) {
        vf w = ldn(a->w, i, hi, DS_F32), g = a->g ? ldn(a->g, i, hi, DS_F32) * h->scale : (vf){0};
        vf m = has_m ? ldn(a->m, i, hi, DS_F32) : (vf){0};
        vf v = has_v ? ldn(a->v, i, hi, DS_F32) : (vf){0};

        step(&w, &m, &v, g, h);
        if (has_m)
            put(a->m2, i, hi, m, stream);
        if (has_v)
            put(a->v2, i, hi, v, stream);
        put(a->w2, i, hi, w, stream);
        if (a->out)
            stn(a->out, i, hi, w, a->dt);
    }
}

/* The loop, shared out over the team. */
INLINE void over(const struct ds_update *a, const struct hyper *h, step_fn *step, int has_m, int has_v)
{
    int stream = may_stream(a);

#pragma omp parallel if (a->n > TEAM_MIN)
    {
        int64_t lo, hi;

        team_span(a->n, 1024, &lo, &hi);
        if (h->skip)
            span(a, h, lo, hi, skip_step, has_m, has_v, 0);
        else
            span(a, h, lo, hi, step, has_m, has_v, stream);
        if (stream)
            stream_end();
    }
}

void K(adamw)(const struct ds_update *u, const struct ds_scalars *s, struct ds_stream *queue)
{
    const struct hyper h = hyper(u, s);

    over(u, &h, adamw_step, 1, 1);
}

void K(lion)(const struct ds_update *u, const struct ds_scalars *s, struct ds_stream *queue)
{
    const struct hyper h = hyper(u, s);

    over(u, &h, lion_step, 1, 0);
}

void K(adagrad)(const struct ds_update *u, const struct ds_scalars *s, struct ds_stream *queue)
{
    const struct hyper h = hyper(u, s);

    over(u, &h, adagrad_step, 0, 1);
}

void K(sgd)(const struct ds_update *u, const struct ds_scalars *s, struct ds_stream *queue)
{
    struct hyper h = hyper(u, s);

    if (u->m) {
        over(u, &h, sgd_step, 1, 0);
    } else {
        h.beta1 = 0.0f;
        over(u, &h, sgd_step, 0, 0);
    }
}

void K(lamb)(const struct ds_update *u, float ratio, const struct ds_scalars *s, struct ds_stream *queue)
{
    struct hyper h = hyper(u, s);
    struct ds_update a = *u;

    h.ratio = ratio;
    a.g = NULL;
    over(&a, &h, lamb_step, 1, 1);
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

/* ---- Lamb's first pass ---- */

#define NORM_BLOCK 4096

/* Moments of [lo, hi), and the sums of squares of w and of the direction. */
static void lamb_block(double sum[2], const struct ds_update *a, const struct hyper *h, int64_t lo, int64_t hi)
{
    double total[2] = {0, 0};

    for (int64_t i = lo; i < hi; i += LANES) {
        vf w = ldn(a->w, i, hi, DS_F32), g = ldn(a->g, i, hi, DS_F32) * h->scale;
        vf m = ldn(a->m, i, hi, DS_F32), v = ldn(a->v, i, hi, DS_F32), u;

        if (!h->skip) {
            m = g + (m - g) * h->beta1;
            v = v * h->beta2 + g * g * (1.0f - h->beta2);
        }
        u = lamb_direction(w, m, v, h);
        u = vf_select(lanes_below(i, hi), u, (vf){0});
        stn(a->m2, i, hi, m, DS_F32);
        stn(a->v2, i, hi, v, DS_F32);
        for (int j = 0; j < LANES; j++) {
            total[0] += (double)w[j] * w[j];
            total[1] += (double)u[j] * u[j];
        }
    }
    sum[0] = total[0];
    sum[1] = total[1];
}

void K(lamb_norms)(double sum[2], const struct ds_update *u, const struct ds_scalars *s,
                   struct ds_stream *stream)
{
    const struct hyper h = hyper(u, s);

    for (int64_t base = 0; base < u->n; base += (int64_t)NORM_BLOCK * SUM_BLOCKS) {
        int64_t left = u->n - base, blocks = (left + NORM_BLOCK - 1) / NORM_BLOCK;
        double each[SUM_BLOCKS][2];

        blocks = blocks < SUM_BLOCKS ? blocks : SUM_BLOCKS;
#pragma omp parallel for schedule(static) if (blocks > 4)
        for (int64_t k = 0; k < blocks; k++) {
            int64_t lo = base + k * NORM_BLOCK, hi = lo + NORM_BLOCK;

            lamb_block(each[k], u, &h, lo, hi < u->n ? hi : u->n);
        }
        for (int64_t k = 0; k < blocks; k++) {
            sum[0] += each[k][0];
            sum[1] += each[k][1];
        }
    }
}
