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

/* One side is f64. */
static void cast_f64(void *y, enum ds_dtype ty, const void *x, enum ds_dtype tx, int64_t lo,
                     int64_t hi)
{
    const double *from = x;

    for (int64_t i = lo; i < hi; i++)
        if (ty == DS_F64)
            ((double *)y)[i] = ld1(x, i, tx);
        else
            stn(y, i, i + 1, vf_set(ty == DS_F32 ? (float)from[i] : round_to_odd(from[i])), ty);
}

INLINE void cast_vectors(void *y, enum ds_dtype ty, const void *x, int64_t lo, int64_t hi,
                         enum ds_dtype tx)
{
    for (int64_t i = lo; i < hi; i += LANES)
        stn(y, i, hi, ldn(x, i, hi, tx), ty);
}

INLINE void cast_f32(void *y, const void *x, int64_t lo, int64_t hi, enum ds_dtype ty)
{
    cast_vectors(y, ty, x, lo, hi, DS_F32);
}

static void cast_span(void *y, enum ds_dtype ty, const void *x, enum ds_dtype tx, int64_t lo,
                      int64_t hi)
{
    size_t size = ds_dtype_bytes(ty);

    if (tx == ty)
        memmove((char *)y + (size_t)lo * size, (const char *)x + (size_t)lo * size,
                (size_t)(hi - lo) * size);
    else if (tx == DS_F64 || ty == DS_F64)
        cast_f64(y, ty, x, tx, lo, hi);
    else if (tx == DS_F32)
        BY_TYPE(ty, cast_f32, y, x, lo, hi);
    else if (ty == DS_F32)
        BY_TYPE(tx, cast_vectors, y, DS_F32, x, lo, hi);
    else
        cast_vectors(y, ty, x, lo, hi, tx);
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
                        enum ds_dtype dt)
{
    for (int64_t i = lo; i < hi; i += LANES) {
        vf s = ldn(src[0], i, hi, dt);

        for (int k = 1; k < nsrc; k++) {
            vf v = ldn(src[k], i, hi, dt);

            s = op ? vf_select((s > v) | (s != s), s, v) : s + v;
        }
        stn(y, i, hi, s, dt);
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
        else
            BY_TYPE(dt, reduce_span, y, src, nsrc, lo, hi, op);
    }
}
