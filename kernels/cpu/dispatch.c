/* kernels_cpu: picks the instruction set once and forwards every call to its table. */
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined __SSE2__
#include <immintrin.h>
#endif

#include "kernels/cpu/tables.h"

static pthread_once_t picked = PTHREAD_ONCE_INIT;
static const struct kernels *table = &kernels_table_plain;
static const char *isa = "plain";
static int bf16_native;

static void pick(void)
{
#if defined DS_KERNELS_X86
    const char *most = getenv("DS_ISA");
    int plain = most && !strcmp(most, "plain"), avx2 = most && !strcmp(most, "avx2");

    __builtin_cpu_init();
    if (plain)
        return;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
        table = &kernels_table_avx2;
        isa = "avx2";
    }
    if (avx2 || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return;
    table = &kernels_table_avx512;
    isa = "avx512";
    if ((!most || strcmp(most, "avx512-core")) && __builtin_cpu_supports("avx512bf16")) {
        table = &kernels_table_avx512bf16;
        bf16_native = 1;
    }
#endif
}

static const struct kernels *ops(void)
{
    pthread_once(&picked, pick);
    return table;
}

const char *kernels_cpu_isa(void)
{
    ops();
    return isa;
}

int kernels_cpu_bf16_native(void)
{
    ops();
    return bf16_native;
}

void kernels_cpu_thread_init(void)
{
#if defined __SSE2__
#pragma omp parallel
    _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
#endif
}

static void embedding_fwd(void *y, const void *wte, const void *wpe, const int32_t *token,
                          const int32_t *pos, int64_t N, int64_t C, enum ds_dtype dt,
                          struct ds_stream *stream)
{
    ops()->embedding_fwd(y, wte, wpe, token, pos, N, C, dt, stream);
}

static void embedding_bwd(float *dwte, float beta_wte, float *dwpe, float beta_wpe, const void *dy,
                          const int32_t *token, const int32_t *pos, int64_t N, int64_t C, int64_t V,
                          int64_t Tmax, enum ds_dtype dt, void *work, struct ds_stream *stream)
{
    ops()->embedding_bwd(dwte, beta_wte, dwpe, beta_wpe, dy, token, pos, N, C, V, Tmax, dt, work,
                         stream);
}

static size_t embedding_bwd_work(int64_t N, int64_t V, int64_t Tmax)
{
    return ops()->embedding_bwd_work(N, V, Tmax);
}

static void layernorm_fwd(void *y, float *mean, float *rstd, const void *x, const void *w,
                          const void *b, int64_t N, int64_t C, float eps, enum ds_dtype dt,
                          struct ds_stream *stream)
{
    ops()->layernorm_fwd(y, mean, rstd, x, w, b, N, C, eps, dt, stream);
}

static void layernorm_bwd(void *dx, int dx_add, float *dw, float *db, float beta, const void *dy,
                          const void *x, const float *mean, const float *rstd, const void *w,
                          int64_t N, int64_t C, enum ds_dtype dt, void *work,
                          struct ds_stream *stream)
{
    ops()->layernorm_bwd(dx, dx_add, dw, db, beta, dy, x, mean, rstd, w, N, C, dt, work, stream);
}

static void rmsnorm_fwd(void *y, float *rstd, const void *x, const void *w, int64_t N, int64_t C,
                        float eps, enum ds_dtype dt, struct ds_stream *stream)
{
    ops()->rmsnorm_fwd(y, rstd, x, w, N, C, eps, dt, stream);
}

static void rmsnorm_bwd(void *dx, int dx_add, float *dw, float beta, const void *dy, const void *x,
                        const float *rstd, const void *w, int64_t N, int64_t C, enum ds_dtype dt,
                        void *work, struct ds_stream *stream)
{
    ops()->rmsnorm_bwd(dx, dx_add, dw, beta, dy, x, rstd, w, N, C, dt, work, stream);
}

static size_t norm_bwd_work(int64_t N, int64_t C)
{
    return ops()->norm_bwd_work(N, C);
}

static void gelu_fwd(void *y, const void *x, int64_t n, enum ds_dtype dt, struct ds_stream *stream)
{
    ops()->gelu_fwd(y, x, n, dt, stream);
}

static void gelu_bwd(void *dx, const void *dy, const void *x, int64_t n, enum ds_dtype dt,
                     struct ds_stream *stream)
{
    ops()->gelu_bwd(dx, dy, x, n, dt, stream);
}

static void swiglu_fwd(void *y, const void *gu, int64_t N, int64_t F, enum ds_dtype dt,
                       struct ds_stream *stream)
{
    ops()->swiglu_fwd(y, gu, N, F, dt, stream);
}

static void swiglu_bwd(void *dgu, const void *dy, const void *gu, int64_t N, int64_t F,
                       enum ds_dtype dt, struct ds_stream *stream)
{
    ops()->swiglu_bwd(dgu, dy, gu, N, F, dt, stream);
}

static void dropout_add_fwd(void *y, const void *x, const void *res, int64_t B, int64_t T,
                            int64_t C, const struct ds_dropout *d, enum ds_dtype dt,
                            struct ds_stream *stream)
{
    ops()->dropout_add_fwd(y, x, res, B, T, C, d, dt, stream);
}

static void dropout_bwd(void *dx, const void *dy, int64_t B, int64_t T, int64_t C,
                        const struct ds_dropout *d, enum ds_dtype dt, struct ds_stream *stream)
{
    ops()->dropout_bwd(dx, dy, B, T, C, d, dt, stream);
}

static void add(void *y, const void *a, const void *b, int64_t n, enum ds_dtype dt,
                struct ds_stream *stream)
{
    ops()->add(y, a, b, n, dt, stream);
}

static void bias_bwd(float *db, float beta, const void *dy, int64_t N, int64_t C, enum ds_dtype dt,
                     void *work, struct ds_stream *stream)
{
    ops()->bias_bwd(db, beta, dy, N, C, dt, work, stream);
}

static void rope(void *qkv, const int32_t *pos, int64_t N, int64_t H, int64_t G, int64_t D,
                 float theta, int inverse, enum ds_dtype dt, struct ds_stream *stream)
{
    ops()->rope(qkv, pos, N, H, G, D, theta, inverse, dt, stream);
}

static size_t attention_work(const struct ds_attention *a, enum ds_dtype dt)
{
    return ops()->attention_work(a, dt);
}

static void attention_fwd(void *out, float *lse, const void *qkv, const struct ds_attention *a,
                          enum ds_dtype dt, void *work, struct ds_stream *stream)
{
    ops()->attention_fwd(out, lse, qkv, a, dt, work, stream);
}

static void attention_bwd(void *dqkv, const void *dout, const void *qkv, const void *out,
                          const float *lse, const struct ds_attention *a, enum ds_dtype dt,
                          void *work, struct ds_stream *stream)
{
    ops()->attention_bwd(dqkv, dout, qkv, out, lse, a, dt, work, stream);
}

static void attention_kv(void *out, const void *qkv, const struct ds_attention *a, struct ds_kv *kv,
                         enum ds_dtype dt, void *work, struct ds_stream *stream)
{
    ops()->attention_kv(out, qkv, a, kv, dt, work, stream);
}

static void cross_entropy(double *loss, float *row_loss, void *dlogits, const void *logits,
                          const int32_t *target, int64_t N, int64_t V, int64_t ld, float seed,
                          enum ds_dtype dt, struct ds_stream *stream)
{
    ops()->cross_entropy(loss, row_loss, dlogits, logits, target, N, V, ld, seed, dt, stream);
}

static void adamw(const struct ds_update *u, const struct ds_scalars *s, struct ds_stream *stream)
{
    ops()->adamw(u, s, stream);
}

static void lion(const struct ds_update *u, const struct ds_scalars *s, struct ds_stream *stream)
{
    ops()->lion(u, s, stream);
}

static void adagrad(const struct ds_update *u, const struct ds_scalars *s, struct ds_stream *stream)
{
    ops()->adagrad(u, s, stream);
}

static void sgd(const struct ds_update *u, const struct ds_scalars *s, struct ds_stream *stream)
{
    ops()->sgd(u, s, stream);
}

static void lamb_norms(double sum[2], const struct ds_update *u, const struct ds_scalars *s,
                       struct ds_stream *stream)
{
    ops()->lamb_norms(sum, u, s, stream);
}

static void lamb(const struct ds_update *u, float ratio, const struct ds_scalars *s,
                 struct ds_stream *stream)
{
    ops()->lamb(u, ratio, s, stream);
}

static void sumsq(double *sum, int32_t *bad, const float *g, int64_t n, struct ds_stream *stream)
{
    ops()->sumsq(sum, bad, g, n, stream);
}

static void cast(void *y, enum ds_dtype ty, const void *x, enum ds_dtype tx, int64_t n,
                 struct ds_stream *stream)
{
    ops()->cast(y, ty, x, tx, n, stream);
}

static void reduce(void *y, const void *const *src, int nsrc, int64_t n, int op, enum ds_dtype dt,
                   struct ds_stream *stream)
{
    ops()->reduce(y, src, nsrc, n, op, dt, stream);
}

const struct kernels kernels_cpu = {
    .device = "cpu",
    .plans_create = matmul_plans_create,
    .plans_destroy = matmul_plans_destroy,
    .matmul_plan = matmul_plan,
    .matmul_run = matmul_run,
    .embedding_fwd = embedding_fwd,
    .embedding_bwd = embedding_bwd,
    .embedding_bwd_work = embedding_bwd_work,
    .layernorm_fwd = layernorm_fwd,
    .layernorm_bwd = layernorm_bwd,
    .rmsnorm_fwd = rmsnorm_fwd,
    .rmsnorm_bwd = rmsnorm_bwd,
    .norm_bwd_work = norm_bwd_work,
    .gelu_fwd = gelu_fwd,
    .gelu_bwd = gelu_bwd,
    .swiglu_fwd = swiglu_fwd,
    .swiglu_bwd = swiglu_bwd,
    .dropout_add_fwd = dropout_add_fwd,
    .dropout_bwd = dropout_bwd,
    .add = add,
    .bias_bwd = bias_bwd,
    .rope = rope,
    .attention_work = attention_work,
    .attention_fwd = attention_fwd,
    .attention_bwd = attention_bwd,
    .attention_kv = attention_kv,
    .cross_entropy = cross_entropy,
    .adamw = adamw,
    .lion = lion,
    .adagrad = adagrad,
    .sgd = sgd,
    .lamb_norms = lamb_norms,
    .lamb = lamb,
    .sumsq = sumsq,
    .cast = cast,
    .reduce = reduce,
};
