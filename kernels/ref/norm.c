/* LayerNorm, RMSNorm, gradient of a bias: the reference. */
#include <math.h>
#include <stddef.h>

#include "kernels/ref/ref.h"

void ref_layernorm_fwd(double *y, double *mean, double *rstd, const double *x, const double *w,
                       const double *b, int64_t N, int64_t C, double eps)
{
    for (int64_t n = 0; n < N; n++) {
        const double *row = x + n * C; /* (C) */
        double m = 0.0, v = 0.0;

        for (int64_t c = 0; c < C; c++)
            m += row[c] / (double)C;
        for (int64_t c = 0; c < C; c++)
            v += (row[c] - m) * (row[c] - m) / (double)C;
        mean[n] = m;
        rstd[n] = 1.0 / sqrt(v + eps);
        for (int64_t c = 0; c < C; c++)
            y[n * C + c] = (row[c] - m) * rstd[n] * w[c] + (b ? b[c] : 0.0);
    }
}

static void start(double *g, double beta, int64_t C)
{
    for (int64_t c = 0; g && c < C; c++)
        g[c] = beta == 0.0 ? 0.0 : beta * g[c];
}

void ref_layernorm_bwd(double *dx, int dx_add, double *dw, double *db, double beta,
                       const double *dy, const double *x, const double *mean, const double *rstd,
                       const double *w, int64_t N, int64_t C)
{
    start(dw, beta, C);
    start(db, beta, C);
    for (int64_t n = 0; n < N; n++) {
        const double *g = dy + n * C, *row = x + n * C; /* (C) */
        double mean_d = 0.0, mean_dh = 0.0;             /* of d = g w, and of d h */

        for (int64_t c = 0; c < C; c++) {
            double h = (row[c] - mean[n]) * rstd[n], d = g[c] * w[c];

            mean_d += d / (double)C;
            mean_dh += d * h / (double)C;
            if (dw)
                dw[c] += g[c] * h;
            if (db)
                db[c] += g[c];
        }
        for (int64_t c = 0; dx && c < C; c++) {
            double h = (row[c] - mean[n]) * rstd[n], d = g[c] * w[c];
            double v = rstd[n] * (d - mean_d - h * mean_dh);

            dx[n * C + c] = dx_add ? dx[n * C + c] + v : v;
        }
    }
}

void ref_rmsnorm_fwd(double *y, double *rstd, const double *x, const double *w, int64_t N,
                     int64_t C, double eps)
{
    for (int64_t n = 0; n < N; n++) {
        double v = 0.0;

        for (int64_t c = 0; c < C; c++)
            v += x[n * C + c] * x[n * C + c] / (double)C;
        rstd[n] = 1.0 / sqrt(v + eps);
        for (int64_t c = 0; c < C; c++)
            y[n * C + c] = x[n * C + c] * rstd[n] * w[c];
    }
}

void ref_rmsnorm_bwd(double *dx, int dx_add, double *dw, double beta, const double *dy,
                     const double *x, const double *rstd, const double *w, int64_t N, int64_t C)
{
    start(dw, beta, C);
    for (int64_t n = 0; n < N; n++) {
        double mean_dh = 0.0; /* of d h with d = dy w, h = x rstd */

        for (int64_t c = 0; c < C; c++) {
            double h = x[n * C + c] * rstd[n];

            mean_dh += dy[n * C + c] * w[c] * h / (double)C;
            if (dw)
                dw[c] += dy[n * C + c] * h;
        }
        for (int64_t c = 0; dx && c < C; c++) {
            double h = x[n * C + c] * rstd[n];
            double v = rstd[n] * (dy[n * C + c] * w[c] - h * mean_dh);

            dx[n * C + c] = dx_add ? dx[n * C + c] + v : v;
        }
    }
}

void ref_bias_bwd(double *db, double beta, const double *dy, int64_t N, int64_t C)
{
    start(db, beta, C);
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++)
            db[c] += dy[n * C + c];
}
