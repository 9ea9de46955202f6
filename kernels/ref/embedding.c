/* Embedding: the reference. */
#include "kernels/ref/ref.h"

void ref_embedding_fwd(double *y, const double *wte, const double *wpe, const int32_t *token,
                       const int32_t *pos, int64_t N, int64_t C)
{
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++)
            y[n * C + c] = wte[token[n] * C + c] + (wpe ? wpe[pos[n] * C + c] : 0.0);
}

static void scatter(double *g, double beta, const double *dy, const int32_t *index, int64_t N,
                    int64_t C, int64_t rows)
{
    for (int64_t i = 0; i < rows * C; i++)
        g[i] = beta == 0.0 ? 0.0 : beta * g[i];
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++)
            g[index[n] * C + c] += dy[n * C + c];
}

void ref_embedding_bwd(double *dwte, double beta_wte, double *dwpe, double beta_wpe,
                       const double *dy, const int32_t *token, const int32_t *pos, int64_t N,
                       int64_t C, int64_t V, int64_t Tmax)
{
    scatter(dwte, beta_wte, dy, token, N, C, V);
    if (dwpe)
        scatter(dwpe, beta_wpe, dy, pos, N, C, Tmax);
}
