/* The operators of kernels.h in plain C, every real array in double: what kernels/cpu and
 * kernels/cuda are held to. Clear rather than fast; single-threaded; arrays are dense and
 * row-major. Meaning and letters as in kernels.h; where beta is given the result is beta * old +
 * new, and beta 0 never reads. */
#ifndef DS_KERNELS_REF_H
#define DS_KERNELS_REF_H

#include "kernels/kernels.h"

/* C (m, n) = A B + bias + beta C, with the strides and transpositions of the description */
void ref_matmul(double *c, const double *a, const double *b, const double *bias, double beta,
                const struct ds_matmul *);

void ref_embedding_fwd(double *y, const double *wte, const double *wpe, const int32_t *token,
                       const int32_t *pos, int64_t N, int64_t C);
void ref_embedding_bwd(double *dwte, double beta_wte, double *dwpe, double beta_wpe,
                       const double *dy, const int32_t *token, const int32_t *pos, int64_t N,
                       int64_t C, int64_t V, int64_t Tmax);

/* mean and rstd (N) are outputs of forward and inputs of backward; b, dx, dw, db may be NULL */
void ref_layernorm_fwd(double *y, double *mean, double *rstd, const double *x, const double *w,
                       const double *b, int64_t N, int64_t C, double eps);
void ref_layernorm_bwd(double *dx, int dx_add, double *dw, double *db, double beta,
                       const double *dy, const double *x, const double *mean, const double *rstd,
                       const double *w, int64_t N, int64_t C);
void ref_rmsnorm_fwd(double *y, double *rstd, const double *x, const double *w, int64_t N,
                     int64_t C, double eps);
void ref_rmsnorm_bwd(double *dx, int dx_add, double *dw, double beta, const double *dy,
                     const double *x, const double *rstd, const double *w, int64_t N, int64_t C);
void ref_bias_bwd(double *db, double beta, const double *dy, int64_t N, int64_t C);

void ref_gelu_fwd(double *y, const double *x, int64_t n);
void ref_gelu_bwd(double *dx, const double *dy, const double *x, int64_t n);
void ref_swiglu_fwd(double *y, const double *gu, int64_t N, int64_t F);
void ref_swiglu_bwd(double *dgu, const double *dy, const double *gu, int64_t N, int64_t F);
void ref_add(double *y, const double *a, const double *b, int64_t n);
void ref_rope(double *qkv, const int32_t *pos, int64_t N, int64_t H, int64_t G, int64_t D,
              double theta, int inverse);

/* The random word of an element (Philox4x32-10) and what dropout multiplies the element by: 1/(1-p)
 * or 0. `site` replaces d->site. */
uint32_t ref_random_word(uint64_t seed, uint64_t sample, uint32_t site, uint64_t element);
double ref_dropout_factor(const struct ds_dropout *d, int64_t b, uint32_t site, uint64_t element);
void ref_dropout_add_fwd(double *y, const double *x, const double *res, int64_t B, int64_t T,
                         int64_t C, const struct ds_dropout *);
void ref_dropout_bwd(double *dx, const double *dy, int64_t B, int64_t T, int64_t C,
                     const struct ds_dropout *);

void ref_attention_fwd(double *out, double *lse, const double *qkv, const struct ds_attention *);
void ref_attention_bwd(double *dqkv, const double *dout, const double *qkv,
                       const struct ds_attention *);

void ref_cross_entropy(double loss[2], double *row_loss, double *dlogits, const double *logits,
                       const int32_t *target, int64_t N, int64_t V, int64_t ld, double seed);

/* Optimizers, in place; g is raw. Formulas and variant: struct ds_update and the optimizers of kernels.h. */
struct ref_hyper {
    double lr, beta1, beta2, eps, decay;
    int variant;
};
void ref_adamw(double *w, double *m, double *v, const double *g, int64_t n, const struct ref_hyper *,
               const struct ds_scalars *);
void ref_lion(double *w, double *m, const double *g, int64_t n, const struct ref_hyper *,
              const struct ds_scalars *);
void ref_adagrad(double *w, double *v, const double *g, int64_t n, const struct ref_hyper *,
                 const struct ds_scalars *);
void ref_sgd(double *w, double *m, const double *g, int64_t n, const struct ref_hyper *,
             const struct ds_scalars *);
void ref_lamb(double *w, double *m, double *v, const double *g, int64_t n, const struct ref_hyper *,
              double min_ratio, double max_ratio, const struct ds_scalars *);
double ref_sumsq(const double *g, int64_t n);
void ref_reduce(double *y, const double *const *src, int nsrc, int64_t n, int op);

/* The value that a number has once stored as t: f32, bf16, f16 by rounding to nearest even. */
double ref_stored(double x, enum ds_dtype t);

#endif
