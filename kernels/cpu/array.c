/* Conversions between storage types, and the sum or maximum of several arrays. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec.h"

/* A double cut to float so that rounding it again to a shorter type gives what rounding once would:
 * towards zero, the last bit set when something was lost. */
static float round_to_odd(double d)
{
    float f = (float)d;
    uint32_t u;

    if ((double)f == d || !isfinite(f) || d != d)
        return f;
    memcpy(&u, &f, sizeof u);
    if (fabs((double)f) > fabs(d))
        u--;
    u |= 1;
    memcpy(&f, &u, sizeof f);
    return f;
}

static float get(const void *p, int64_t i, enum ds_dtype t, enum ds_dtype to)
{
    switch (t) {
    case DS_BF16:
        return ld1(p, i, 1);
    case DS_F16:
        return (float)((const _Float16 *)p)[i];
    case DS_F64:
        return to == DS_F32 ? (float)((const double *)p)[i] : round_to_odd(((const double *)p)[i]);
    default:
        return ((const float *)p)[i];
    }
}

static void put(void *p, int64_t i, enum ds_dtype t, float v)
{
    uint32_t u;

    switch (t) {
    case DS_BF16:
        memcpy(&u, &v, sizeof u);
        u = v != v ? (u >> 16) | 0x40 : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
        ((uint16_t *)p)[i] = (uint16_t)u;
        return;
    case DS_F16:
        ((_Float16 *)p)[i] = (_Float16)v;
        return;
    case DS_F64:
        ((double *)p)[i] = v;
        return;
    default:
        ((float *)p)[i] = v;
    }
}

INLINE void cast_vectors(void *y, int ybf, const void *x, int xbf, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += LANES)
        stn(y, i, hi, ldn(x, i, hi, xbf), ybf);
}

static void cast_span(void *y, enum ds_dtype ty, const void *x, enum ds_dtype tx, int64_t lo,
                      int64_t hi)
{
    size_t size = ds_dtype_bytes(ty);

    if (tx == ty)
        memmove((char *)y + (size_t)lo * size, (const char *)x + (size_t)lo * size,
                (size_t)(hi - lo) * size);
    else if (tx == DS_F32 && ty == DS_BF16)
        cast_vectors(y, 1, x, 0, lo, hi);
    else if (tx == DS_BF16 && ty == DS_F32)
        cast_vectors(y, 0, x, 1, lo, hi);
    else
        for (int64_t i = lo; i < hi; i++)
            put(y, i, ty, get(x, i, tx, ty));
}

void K(cast)(void *y, enum ds_dtype ty, const void *x, enum ds_dtype tx, int64_t n,
             struct ds_stream *stream)
{
#pragma omp parallel if (n > TEAM_MIN)
    {
        int64_t lo, hi;

        team_span(n, 1024, &lo, &hi);
        cast_span(y, ty, x, tx, lo, hi);
    }
}

INLINE void reduce_span(void *y, const void *const *src, int nsrc, int64_t lo, int64_t hi, int op,
                        int bf)
{
    for (int64_t i = lo; i < hi; i += LANES) {
        vf s = ldn(src[0], i, hi, bf);

        for (int k = 1; k < nsrc; k++) {
            vf v = ldn(src[k], i, hi, bf);

            s = op ? vf_select((s > v) | (s != s), s, v) : s + v;
        }
        stn(y, i, hi, s, bf);
    }
}

static void reduce_f64(double *y, const void *const *src, int nsrc, int64_t lo, int64_t hi, int op)
{
    for (int64_t i = lo; i < hi; i++) {
        double s = ((const double *)src[0])[i];

        for (int k = 1; k < nsrc; k++) {
            double v = ((const double *)src[k])[i];

            if (!op)
                s += v;
            else if (!(s > v) && s == s)
                s = v;
        }
        y[i] = s;
    }
}

void K(reduce)(void *y, const void *const *src, int nsrc, int64_t n, int op, enum ds_dtype dt,
               struct ds_stream *stream)
{
#pragma omp parallel if (n * nsrc > TEAM_MIN)
    {
        int64_t lo, hi;

        team_span(n, 1024, &lo, &hi);
        if (dt == DS_F64)
            reduce_f64(y, src, nsrc, lo, hi, op);
        else if (dt == DS_BF16)
            reduce_span(y, src, nsrc, lo, hi, op, 1);
        else
            reduce_span(y, src, nsrc, lo, hi, op, 0);
    }
}
