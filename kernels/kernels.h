/* The arithmetic: one const table of plain functions per device, C linkage.
 *
 * A kernel takes pointers, sizes and a stream. It never allocates, logs or waits for the host. Arrays
 * are row-major and do not alias unless its comment says so. On the CPU the call runs on the calling
 * thread's OpenMP team and returns when done; the stream is ignored.
 *
 * `dt` is the type of activations and of the gathered weights (f32, bf16 or f16). Arithmetic inside is
 * fp32, results are rounded once to nearest even, in f16 to infinity from 65520 on; f16 subnormals are kept.
 * Weight gradients are fp32 and are written as g = beta * g + dW; with beta == 0 the old content is never
 * read (it may be NaN).
 *
 * kernels/ref/ref.h declares the same operators in plain C with every real array in double: the
 * specification that kernels/cpu and kernels/cuda are held to, itself checked by finite differences.
 *
 * Letters: B batch, T tokens, C model width, V vocabulary, H query heads, G key/value heads, D head
 * width, F feed-forward width, N rows = B*T.
 */
#ifndef DS_KERNELS_H
#define DS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ds_dtype { DS_F32, DS_BF16, DS_F16, DS_F64, DS_I32, DS_I64, DS_U8, DS_DTYPES };

static inline size_t ds_dtype_bytes(enum ds_dtype t)
{
    static const uint8_t bytes[DS_DTYPES] = {4, 2, 2, 8, 4, 8, 1};
    return bytes[t];
}

struct ds_stream; /* engine/device/device.h */

/* Every number that changes between steps, in device memory, so that a step can be captured. */
struct ds_scalars {
    uint64_t seed;
    int64_t step, update; /* attempts; applied updates (Adam's t, 1 at the first) */
    float lr;             /* of the schedule; a group multiplies it by its own factor */
    float grad_scale;     /* what a raw gradient is multiplied by before the update: unscale, V, clip */
    float loss_scale;
    float beta1;          /* decay of the first moment, SGD's momentum: a schedule may cycle it */
    int32_t skip;         /* nonzero: the update is a no-op (masters, m, v, weights unchanged) */
};

/* One optimizer call over n neighbouring elements with the same hyper-parameters: generation (w, m, v) is
 * read, (w2, m2, v2) is written, which may be the same arrays; g is raw, multiplied by s->grad_scale. What an
 * optimizer has no use for is NULL and 0. */
struct ds_update {
    float *w2, *m2, *v2;
    const float *w, *m, *v, *g;
    void *out;         /* the weight rounded to dt, or NULL */
    enum ds_dtype dt;
    int64_t n;
    float lr_mul;      /* lr = s->lr * lr_mul */
    float beta2, eps, decay;
    int variant;       /* 1: adamw: decay apart from the gradient (AdamW, else Adam); sgd: Nesterov */
};

/* Dropout of one site: keep element when rng_word(seed, sample[b], site, element) >= p * 2^32, kept
 * elements times 1/(1-p). element is the row-major index within the sample's global tensor.
 * p == 0: off, sample may be NULL. */
struct ds_dropout {
    float p;
    uint32_t site;
    uint64_t seed;
    const uint64_t *sample; /* (B) */
};

/* Attention of B sequences. Query i sees key j iff doc[i] <= j <= i (positions within the sample;
 * doc[i] = index where i's document begins; doc NULL: 0). q, k, v lie in one packed row per token:
 * (B, T, (H + 2G) * D): H query heads, then G key heads, then G value heads. Query head h reads
 * key/value head h / (H/G). */
struct ds_attention {
    int64_t B, T, H, G, D;
    float scale;               /* 1/sqrt(D) as a rule */
    const int32_t *doc;        /* (B, T) or NULL */
    struct ds_dropout dropout; /* on the probabilities; site + h per head, element = i * T_sample + j with
                                * T_sample = T */
};

/* Keys and values of earlier tokens (decode): k and v are (B, G, max, D); the call appends T new rows at
 * [past, past + T) and attends to all. */
struct ds_kv {
    void *k, *v;
    int64_t max, past;
    enum ds_dtype dtype;
};

/* A matrix product C(m,n) = alpha A(m,k) B(k,n) [+ bias] [+ beta C], optionally batched. Row-major;
 * ta: A is stored (k,m); tb: B is stored (n,k). lda, ldb, ldc: elements between stored rows, 0 = dense.
 * Types: A and B equal (f32, bf16, f16), C f32 or the same as A. bias (n) has A's type. */
enum ds_epilogue { DS_EPI_NONE, DS_EPI_BIAS };
struct ds_matmul {
    int64_t m, n, k, batch;        /* batch >= 1 */
    int64_t lda, ldb, ldc;
    int64_t stride_a, stride_b, stride_c; /* elements between batch members; 0 = dense */
    int ta, tb;
    enum ds_dtype ab, c;
    enum ds_epilogue epilogue;
    int accumulate;                /* the plan also serves beta == 1 */
};

struct ds_plans; /* the plan table of one rank; not thread-safe */
struct ds_plan;  /* owned by the table, valid until the table is destroyed */

struct kernels {
    const char *device; /* "cpu", "cuda" */

    /* --- matrix products --- */
    struct ds_plans *(*plans_create)(void);
    void (*plans_destroy)(struct ds_plans *);
    /* Finds or makes the plan for this product and the current thread count. NULL: not possible
     * (why[] says so). work_bytes: scratch that matmul_run needs. */
    const struct ds_plan *(*matmul_plan)(struct ds_plans *, const struct ds_matmul *, size_t *work_bytes,
                                         char why[256]);
    int (*matmul_run)(const struct ds_plan *, const void *a, const void *b, void *c, const void *bias,
                      float beta, void *work, struct ds_stream *);

    /* --- embedding --- y (N, C) = wte[token] (+ wpe[pos]); wte (V, C), wpe (T_max, C) or NULL */
    void (*embedding_fwd)(void *y, const void *wte, const void *wpe, const int32_t *token,
                          const int32_t *pos, int64_t N, int64_t C, enum ds_dtype dt, struct ds_stream *);
    /* dwte (V, C), dwpe (Tmax, C) fp32; each row is summed in token order, so the result does not depend on
     * the thread count. work: embedding_bwd_work(N) bytes. */
    void (*embedding_bwd)(float *dwte, float beta_wte, float *dwpe, float beta_wpe, const void *dy,
                          const int32_t *token, const int32_t *pos, int64_t N, int64_t C, int64_t V,
                          int64_t Tmax, enum ds_dtype dt, void *work, struct ds_stream *);
    size_t (*embedding_bwd_work)(int64_t N, int64_t V, int64_t Tmax);

    /* --- norms over rows of (N, C); mean and rstd are (N) fp32, saved for backward --- */
    void (*layernorm_fwd)(void *y, float *mean, float *rstd, const void *x, const void *w, const void *b,
                          int64_t N, int64_t C, float eps, enum ds_dtype dt, struct ds_stream *);
    /* dx (N, C) may be NULL; dw, db (C) fp32 may be NULL. dx_add: dx += instead of dx =
     * (the residual's gradient is already there). work: norm_bwd_work(C) bytes. */
    void (*layernorm_bwd)(void *dx, int dx_add, float *dw, float *db, float beta, const void *dy,
                          const void *x, const float *mean, const float *rstd, const void *w, int64_t N,
                          int64_t C, enum ds_dtype dt, void *work, struct ds_stream *);
    void (*rmsnorm_fwd)(void *y, float *rstd, const void *x, const void *w, int64_t N, int64_t C,
                        float eps, enum ds_dtype dt, struct ds_stream *);
    void (*rmsnorm_bwd)(void *dx, int dx_add, float *dw, float beta, const void *dy, const void *x,
                        const float *rstd, const void *w, int64_t N, int64_t C, enum ds_dtype dt,
                        void *work, struct ds_stream *);
    size_t (*norm_bwd_work)(int64_t N, int64_t C);

    /* --- pointwise --- n elements */
    void (*gelu_fwd)(void *y, const void *x, int64_t n, enum ds_dtype dt, struct ds_stream *); /* tanh form */
    void (*gelu_bwd)(void *dx, const void *dy, const void *x, int64_t n, enum ds_dtype dt,
                     struct ds_stream *); /* dx may be dy */
    /* gu (N, 2F): row = gate (F), up (F). y (N, F) = silu(gate) * up */
    void (*swiglu_fwd)(void *y, const void *gu, int64_t N, int64_t F, enum ds_dtype dt,
                       struct ds_stream *);
    void (*swiglu_bwd)(void *dgu, const void *dy, const void *gu, int64_t N, int64_t F, enum ds_dtype dt,
                       struct ds_stream *);
    /* y = res + dropout(x); (B, T, C), element = t * C + c; res NULL: y = dropout(x). y may be x. */
    void (*dropout_add_fwd)(void *y, const void *x, const void *res, int64_t B, int64_t T, int64_t C,
                            const struct ds_dropout *, enum ds_dtype dt, struct ds_stream *);
    /* dx = dy * mask/(1-p); dx may be dy */
    void (*dropout_bwd)(void *dx, const void *dy, int64_t B, int64_t T, int64_t C,
                        const struct ds_dropout *, enum ds_dtype dt, struct ds_stream *);
    void (*add)(void *y, const void *a, const void *b, int64_t n, enum ds_dtype dt, struct ds_stream *);
    /* db (C) = beta * db + sum over rows of dy (N, C); work: norm_bwd_work(N, C) */
    void (*bias_bwd)(float *db, float beta, const void *dy, int64_t N, int64_t C, enum ds_dtype dt,
                     void *work, struct ds_stream *);

    /* --- rotary position embedding, in place on the first H + G heads of packed rows (N, (H+2G)*D):
     * pairs (i, i + D/2), angle pos * theta^(-2i/D); inverse rotates back (the backward) --- */
    void (*rope)(void *qkv, const int32_t *pos, int64_t N, int64_t H, int64_t G, int64_t D, float theta,
                 int inverse, enum ds_dtype dt, struct ds_stream *);

    /* --- attention --- out (B, T, H*D); lse (B, H, T) fp32 is log-sum-exp of the scaled scores; work:
     * attention_work bytes, asked with the thread count that the call will have */
    size_t (*attention_work)(const struct ds_attention *, enum ds_dtype dt);
    void (*attention_fwd)(void *out, float *lse, const void *qkv, const struct ds_attention *,
                          enum ds_dtype dt, void *work, struct ds_stream *);
    void (*attention_bwd)(void *dqkv, const void *dout, const void *qkv, const void *out,
                          const float *lse, const struct ds_attention *, enum ds_dtype dt, void *work,
                          struct ds_stream *);
    /* Decode: qkv holds the new T tokens; appends to kv and attends over past + T. No dropout, no doc. */
    void (*attention_kv)(void *out, const void *qkv, const struct ds_attention *, struct ds_kv *,
                         enum ds_dtype dt, void *work, struct ds_stream *);

    /* --- softmax and cross-entropy over rows of logits (N, V), row stride ld >= V ---
     * loss[0] += sum over rows with target >= 0 of -log p(target); loss[1] += their number (double).
     * dlogits (may be logits, NULL: loss only) = (p - onehot) * seed, zero where target < 0; columns
     * [V, ld) are set to zero. Rows are added in order. row_loss (N) fp32 or NULL. */
    void (*cross_entropy)(double *loss, float *row_loss, void *dlogits, const void *logits,
                          const int32_t *target, int64_t N, int64_t V, int64_t ld, float seed,
                          enum ds_dtype dt, struct ds_stream *);

    /* --- flat shards --- */
    /* Optimizers (Loshchilov & Hutter 2019, Chen et al. 2023, Duchi et al. 2011, Sutskever et al. 2013, You et
     * al. 2020), one pass over memory each; t = s->update, b1 = s->beta1, g and decay as in struct ds_update;
     * s->skip: copies.
     *   adamw    m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2, w -= lr (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + decay w)
     *   lion     w -= lr (sign(b1 m + (1-b1) g) + decay w), m = b2 m + (1-b2) g
     *   adagrad  g += decay w, v += g^2, w -= lr g / (sqrt(v) + eps)
     *   sgd      g += decay w, m = b1 m + g (g at t = 1), w -= lr m, or lr (g + b1 m) with Nesterov; m NULL: w -= lr g
     * Lamb in two: lamb_norms steps m and v as adamw does and adds to sum[0] the squares of w, to sum[1] those
     * of u = m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + decay w, fp64; lamb reads the new m and v and takes
     * w -= lr ratio u with the caller's ratio of the whole tensor. */
    void (*adamw)(const struct ds_update *, const struct ds_scalars *s, struct ds_stream *);
    void (*lion)(const struct ds_update *, const struct ds_scalars *s, struct ds_stream *);
    void (*adagrad)(const struct ds_update *, const struct ds_scalars *s, struct ds_stream *);
    void (*sgd)(const struct ds_update *, const struct ds_scalars *s, struct ds_stream *);
    void (*lamb_norms)(double sum[2], const struct ds_update *, const struct ds_scalars *s,
                       struct ds_stream *);
    void (*lamb)(const struct ds_update *, float ratio, const struct ds_scalars *s, struct ds_stream *);
    /* *sum = fp64 sum of squares in fixed blocks of 4096 elements added in order; *bad |= 1 when not finite */
    void (*sumsq)(double *sum, int32_t *bad, const float *g, int64_t n, struct ds_stream *);
    /* between any two of f32, bf16, f16 and f64 */
    void (*cast)(void *y, enum ds_dtype ty, const void *x, enum ds_dtype tx, int64_t n,
                 struct ds_stream *);
    /* y[i] = sum over s in order of src[s][i], fp32 accumulation, all of type dt (f32, bf16, f16, f64);
     * op 1: maximum. y may be one of the sources. */
    void (*reduce)(void *y, const void *const *src, int nsrc, int64_t n, int op, enum ds_dtype dt,
                   struct ds_stream *);
};

/* The instruction set is picked once: "avx512", "avx2" or "plain", the best that the processor has, at
 * most DS_ISA=NAME when that is set (NAME may also be "avx512-core": AVX-512 without bf16 products). */
extern const struct kernels kernels_cpu;
const char *kernels_cpu_isa(void);
int kernels_cpu_bf16_native(void); /* 0: bf16 products are emulated in fp32 */
void kernels_cpu_thread_init(void); /* sets flush-to-zero on this thread and its OpenMP team */

#ifdef __cplusplus
}
#endif

#endif
