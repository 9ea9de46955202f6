/* GELU, SwiGLU, sum of two arrays, rotary embedding: one pass over memory each. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec.h"

/* GELU in the tanh form: with u = sqrt(2/pi) (x + 0.044715 x^3), 0.5 (1 + tanh u) = sigmoid(2u). */
#define GELU_A 1.5957691216f /* 2 sqrt(2/pi) */
#define GELU_B 0.044715f

INLINE vf gelu_gate(vf x)
{
    return vf_sigmoid(x * GELU_A * (1.0f + GELU_B * x * x));
}

INLINE void gelu_span(void *y, const void *x, int64_t lo, int64_t hi, enum ds_dtype dt)
{
    for (int64_t i = lo; i < hi; i += LANES) {
        vf v = ldn(x, i, hi, dt);

        stn(y, i, hi, v * gelu_gate(v), dt);
    }
}

void K(gelu_fwd)(void *y, const void *x, int64_t n, enum ds_dtype dt, struct ds_stream *stream)
{
#pragma omp parallel if (n > TEAM_MIN)
    {
        int64_t lo, hi;

        team_span(n, 1024, &lo, &hi);
        BY_TYPE(dt, gelu_span, y, x, lo, hi);
    }
}

INLINE void gelu_bwd_span(void *dx, const void *dy, const void *x, int64_t lo, int64_t hi,
                          enum ds_dtype dt)
{
    for (int64_t i = lo; i < hi; i += LANES) {
        vf v = ldn(x, i, hi, dt), g = gelu_gate(v);
        vf slope = g + v * g * (1.0f - g) * (GELU_A * (1.0f + 3.0f * GELU_B * v * v));

        stn(dx, i, hi, ldn(dy, i, hi, dt) * slope, dt);
    }
}

void K(gelu_bwd)(void *dx, const void *dy, const void *x, int64_t n, enum ds_dtype dt,
                 struct ds_stream *stream)
{
#pragma omp parallel if (n > TEAM_MIN)
    {
        int64_t lo, hi;

        team_span(n, 1024, &lo, &hi);
        BY_TYPE(dt, gelu_bwd_span, dx, dy, x, lo, hi);
    }
}

INLINE void swiglu_row(void *y, const void *gu, int64_t F, enum ds_dtype dt)
{
    const void *up = at(gu, F, dt);

    for (int64_t f = 0; f < F; f += LANES) {
        vf g = ldn(gu, f, F, dt);

        stn(y, f, F, g * vf_sigmoid(g) * ldn(up, f, F, dt), dt);
    }
}

void K(swiglu_fwd)(void *y, const void *gu, int64_t N, int64_t F, enum ds_dtype dt,
                   struct ds_stream *stream)
{
#pragma omp parallel for if (N * F > TEAM_MIN)
    for (int64_t n = 0; n < N; n++)
        BY_TYPE(dt, swiglu_row, at_w(y, n * F, dt), at(gu, 2 * n * F, dt), F);
}

INLINE void swiglu_bwd_row(void *dgu, const void *dy, const void *gu, int64_t F, enum ds_dtype dt)
{
    const void *up = at(gu, F, dt);
    void *dup = at_w(dgu, F, dt);

    for (int64_t f = 0; f < F; f += LANES) {
        vf g = ldn(gu, f, F, dt), u = ldn(up, f, F, dt), s = vf_sigmoid(g), d = ldn(dy, f, F, dt);

        stn(dgu, f, F, d * u * (s + g * s * (1.0f - s)), dt);
        stn(dup, f, F, d * g * s, dt);
    }
}

void K(swiglu_bwd)(void *dgu, const void *dy, const void *gu, int64_t N, int64_t F,
                   enum ds_dtype dt, struct ds_stream *stream)
{
#pragma omp parallel for if (N * F > TEAM_MIN)
    for (int64_t n = 0; n < N; n++)
        BY_TYPE(dt, swiglu_bwd_row, at_w(dgu, 2 * n * F, dt), at(dy, n * F, dt),
                at(gu, 2 * n * F, dt), F);
}

INLINE void add_span(void *y, const void *a, const void *b, int64_t lo, int64_t hi,
                     enum ds_dtype dt)
{
    for (int64_t i = lo; i < hi; i += LANES)
        stn(y, i, hi, ldn(a, i, hi, dt) + ldn(b, i, hi, dt), dt);
}

void K(add)(void *y, const void *a, const void *b, int64_t n, enum ds_dtype dt,
            struct ds_stream *stream)
{
#pragma omp parallel if (n > TEAM_MIN)
    {
        int64_t lo, hi;

        team_span(n, 1024, &lo, &hi);
        BY_TYPE(dt, add_span, y, a, b, lo, hi);
    }
}

#define ROPE_PAIRS 64
#define ROPE_STRIDE 16

/* Cosines and sines of pos * freq by the addition theorem in double: those of the last multiple of
 * ROPE_STRIDE and those of the rest, each worked out once. A function of the position alone, whoever
 * computes it. */
struct rope_table {
    double freq[ROPE_PAIRS];
    double rest_cos[ROPE_STRIDE][ROPE_PAIRS], rest_sin[ROPE_STRIDE][ROPE_PAIRS];
    double base_cos[ROPE_PAIRS], base_sin[ROPE_PAIRS];
    int64_t base;
    unsigned have; /* bit r: rest r is filled in */
};

static void rope_angles(struct rope_table *t, int64_t pos, int64_t pairs, int inverse, float *cs,
                        float *sn)
{
    int64_t base = pos / ROPE_STRIDE * ROPE_STRIDE, r = pos - base;

    if (base != t->base)
        for (int64_t i = 0; i < pairs; i++) {
            t->base_cos[i] = cos((double)base * t->freq[i]);
            t->base_sin[i] = sin((double)base * t->freq[i]);
        }
    t->base = base;
    if (!(t->have >> r & 1))
        for (int64_t i = 0; i < pairs; i++) {
            t->rest_cos[r][i] = cos((double)r * t->freq[i]);
            t->rest_sin[r][i] = sin((double)r * t->freq[i]);
        }
    t->have |= 1u << r;
    for (int64_t i = 0; i < pairs; i++) {
        double c = t->base_cos[i] * t->rest_cos[r][i] - t->base_sin[i] * t->rest_sin[r][i];
        double s = t->base_sin[i] * t->rest_cos[r][i] + t->base_cos[i] * t->rest_sin[r][i];

        cs[i] = (float)c;
        sn[i] = (float)(inverse ? -s : s);
    }
}

/* Rotates the pairs [i0, i0 + pairs) of every head of one row. */
INLINE void rope_row(void *row, int64_t heads, int64_t D, int64_t i0, int64_t pairs,
                     const float *cs, const float *sn, enum ds_dtype dt)
{
    for (int64_t h = 0; h < heads; h++) {
        void *a = at_w(row, h * D + i0, dt), *b = at_w(row, h * D + D / 2 + i0, dt);

        for (int64_t i = 0; i < pairs; i += LANES) {
            vf x = ldn(a, i, pairs, dt), y = ldn(b, i, pairs, dt);
            vf c = ldn(cs, i, pairs, DS_F32), s = ldn(sn, i, pairs, DS_F32);

            stn(a, i, pairs, x * c - y * s, dt);
            stn(b, i, pairs, x * s + y * c, dt);
        }
    }
}

void K(rope)(void *qkv, const int32_t *pos, int64_t N, int64_t H, int64_t G, int64_t D, float theta,
             int inverse, enum ds_dtype dt, struct ds_stream *stream)
{
    for (int64_t i0 = 0; i0 < D / 2; i0 += ROPE_PAIRS) {
        int64_t pairs = D / 2 - i0 < ROPE_PAIRS ? D / 2 - i0 : ROPE_PAIRS;
        struct rope_table table = {.base = -1};

        for (int64_t i = 0; i < pairs; i++)
            table.freq[i] = pow(theta, -2.0 * (double)(i0 + i) / (double)D);
#pragma omp parallel for firstprivate(table) if (N * (H + G) * D > TEAM_MIN)
        for (int64_t n = 0; n < N; n++) {
            float cs[ROPE_PAIRS], sn[ROPE_PAIRS];
            void *row = at_w(qkv, n * (H + 2 * G) * D, dt);

            rope_angles(&table, pos[n], pairs, inverse, cs, sn);
            BY_TYPE(dt, rope_row, row, H + G, D, i0, pairs, cs, sn);
        }
    }
}
