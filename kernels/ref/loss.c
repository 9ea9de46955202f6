/* Softmax and cross-entropy: the reference. */
#include <math.h>
#include <stddef.h>

#include "kernels/ref/ref.h"

void ref_cross_entropy(double loss[2], double *row_loss, double *dlogits, const double *logits,
                       const int32_t *target, int64_t N, int64_t V, int64_t ld, double seed)
{
    for (int64_t n = 0; n < N; n++) {
        const double *x = logits + n * ld; /* (V) */
        double max = -INFINITY, sum = 0.0, l = 0.0;

        for (int64_t v = 0; v < V; v++)
            max = fmax(max, x[v]);
        for (int64_t v = 0; v < V; v++)
            sum += exp(x[v] - max);
        if (target[n] >= 0) {
            l = max + log(sum) - x[target[n]];
            loss[0] += l;
            loss[1] += 1.0;
        }
        if (row_loss)
            row_loss[n] = l;
        for (int64_t v = 0; dlogits && v < ld; v++) {
            double p = v < V ? exp(x[v] - max) / sum : 0.0;

            dlogits[n * ld + v] = target[n] < 0 || v >= V ? 0.0 : (p - (v == target[n])) * seed;
        }
    }
}
