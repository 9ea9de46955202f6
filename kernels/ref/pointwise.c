/* GELU (tanh form), SwiGLU, sum, rotary embedding: the reference. */
#include <math.h>

#include "kernels/ref/ref.h"

#define ROOT_2_PI 0.79788456080286535588 /* sqrt(2/pi) */

void ref_gelu_fwd(double *y, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double u = ROOT_2_PI * (x[i] + 0.044715 * x[i] * x[i] * x[i]);

        y[i] = 0.5 * x[i] * (1.0 + tanh(u));
    }
}

void ref_gelu_bwd(double *dx, const double *dy, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double u = ROOT_2_PI * (x[i] + 0.044715 * x[i] * x[i] * x[i]), t = tanh(u);
        double du = ROOT_2_PI * (1.0 + 3.0 * 0.044715 * x[i] * x[i]);

        dx[i] = dy[i] * (0.5 * (1.0 + t) + 0.5 * x[i] * (1.0 - t * t) * du);
    }
}

void ref_swiglu_fwd(double *y, const double *gu, int64_t N, int64_t F)
{
    for (int64_t n = 0; n < N; n++)
        for (int64_t f = 0; f < F; f++) {
            double g = gu[n * 2 * F + f], u = gu[n * 2 * F + F + f];

            y[n * F + f] = g / (1.0 + exp(-g)) * u;
        }
}

void ref_swiglu_bwd(double *dgu, const double *dy, const double *gu, int64_t N, int64_t F)
{
    for (int64_t n = 0; n < N; n++)
        for (int64_t f = 0; f < F; f++) {
            double g = gu[n * 2 * F + f], u = gu[n * 2 * F + F + f], d = dy[n * F + f];
            double s = 1.0 / (1.0 + exp(-g));

            dgu[n * 2 * F + f] = d * u * s * (1.0 + g * (1.0 - s));
            dgu[n * 2 * F + F + f] = d * g * s;
        }
}

void ref_add(double *y, const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

void ref_rope(double *qkv, const int32_t *pos, int64_t N, int64_t H, int64_t G, int64_t D,
              double theta, int inverse)
{
    for (int64_t n = 0; n < N; n++)
        for (int64_t h = 0; h < H + G; h++) {
            double *x = qkv + (n * (H + 2 * G) + h) * D; /* (D) */

            for (int64_t i = 0; i < D / 2; i++) {
                double angle = pos[n] * pow(theta, -2.0 * (double)i / (double)D);
                double c = cos(angle), s = inverse ? -sin(angle) : sin(angle);
                double a = x[i], b = x[i + D / 2];

                x[i] = a * c - b * s;
                x[i + D / 2] = a * s + b * c;
            }
        }
}
