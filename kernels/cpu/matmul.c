/* Matrix products by oneDNN: the only file that includes its header; it knows the C API of 2.x and
 * of 3.x, which differ in how a primitive is described.
 *
 * A plan is one or two primitives (beta 0, and beta 1 as a sum post-op) made for one thread count;
 * the scratch is the caller's. Operands in f16, and in bf16 where its products are not native, are
 * widened to fp32 in that scratch, multiplied there, and the result is rounded once. */
#include <dnnl.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/tables.h"

/* A memory descriptor is a struct passed by address in 2.x and a handle in 3.x. */
#if DNNL_VERSION_MAJOR >= 3
#define MD(x) (x)
#else
#define MD(x) (&(x))
#endif

enum operand { OP_A, OP_B, OP_C, OP_BIAS, OP_SCRATCH, OPERANDS };

struct ds_plan {
    struct ds_matmul want;    /* as asked, strides filled in */
    struct ds_matmul product; /* as computed: fp32 and dense where emulated */
    int threads, emulated;
    size_t scratch; /* oneDNN's, bytes */
    size_t at[4];   /* offsets of widened A, B, C, bias in work */
    dnnl_primitive_t primitive[2];
    dnnl_memory_t memory[OPERANDS];
    dnnl_stream_t stream; /* of the table */
};

struct ds_plans {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct ds_plan **plan;
    size_t count, room;
};

struct ds_plans *matmul_plans_create(void)
{
    struct ds_plans *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    if (dnnl_engine_create(&p->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags) != dnnl_success) {
        matmul_plans_destroy(p);
        return NULL;
    }
    return p;
}

static void plan_destroy(struct ds_plan *p)
{
    for (int i = 0; i < 2; i++)
        if (p->primitive[i])
            dnnl_primitive_destroy(p->primitive[i]);
    for (int i = 0; i < OPERANDS; i++)
        if (p->memory[i])
            dnnl_memory_destroy(p->memory[i]);
    free(p);
}

void matmul_plans_destroy(struct ds_plans *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->count; i++)
        plan_destroy(p->plan[i]);
    if (p->stream)
        dnnl_stream_destroy(p->stream);
    if (p->engine)
        dnnl_engine_destroy(p->engine);
    free(p->plan);
    free(p);
}

__attribute__((format(printf, 2, 3))) static int refuse(char why[256], const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, 256, fmt, ap);
    va_end(ap);
    return -1;
}

/* Zero strides to dense ones, so that equal products have equal keys. */
static void fill_strides(struct ds_matmul *m)
{
    m->lda = m->lda ? m->lda : m->ta ? m->m : m->k;
    m->ldb = m->ldb ? m->ldb : m->tb ? m->k : m->n;
    m->ldc = m->ldc ? m->ldc : m->n;
    if (m->batch == 1)
        m->stride_a = m->stride_b = m->stride_c = 0;
    else {
        m->stride_a = m->stride_a ? m->stride_a : m->lda * (m->ta ? m->k : m->m);
        m->stride_b = m->stride_b ? m->stride_b : m->ldb * (m->tb ? m->n : m->k);
        m->stride_c = m->stride_c ? m->stride_c : m->ldc * m->m;
    }
}

static int check(const struct ds_matmul *m, char why[256])
{
    if (m->m < 1 || m->n < 1 || m->k < 1 || m->batch < 1)
        return refuse(
            why,
            "matrix product of (%lld, %lld) by (%lld, %lld), batch %lld: sizes must be at "
            "least 1",
            (long long)m->m, (long long)m->k, (long long)m->k, (long long)m->n,
            (long long)m->batch);
    if ((m->ab != DS_F32 && m->ab != DS_BF16 && m->ab != DS_F16) ||
        (m->c != DS_F32 && m->c != m->ab))
        return refuse(why, "matrix product: operands must be f32, bf16 or f16 and the result f32 "
                           "or the same");
    if (m->lda < (m->ta ? m->m : m->k) || m->ldb < (m->tb ? m->k : m->n) || m->ldc < m->n)
        return refuse(why, "matrix product: a row stride is shorter than its row");
    return 0;
}

static int same(const struct ds_matmul *x, const struct ds_matmul *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->batch == y->batch &&
           x->lda == y->lda && x->ldb == y->ldb && x->ldc == y->ldc && x->stride_a == y->stride_a &&
           x->stride_b == y->stride_b && x->stride_c == y->stride_c && x->ta == y->ta &&
           x->tb == y->tb && x->ab == y->ab && x->c == y->c && x->epilogue == y->epilogue &&
           x->accumulate == y->accumulate;
}

/* --- oneDNN --- */

static dnnl_status_t describe(dnnl_memory_desc_t *md, int64_t batch, int64_t rows, int64_t cols,
                              int64_t stride, int64_t row, int64_t col, enum ds_dtype t)
{
    dnnl_dims_t dims = {batch, rows, cols}, strides = {stride ? stride : rows * cols, row, col};
    int skip = batch == 1; /* two dimensions: oneDNN's fastest path */
    dnnl_data_type_t type = t == DS_BF16 ? dnnl_bf16 : dnnl_f32;

    if (skip) {
        memmove(dims, dims + 1, 2 * sizeof *dims);
        memmove(strides, strides + 1, 2 * sizeof *strides);
    }
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(md, 3 - skip, dims, type, strides);
#else
    return dnnl_memory_desc_init_by_strides(md, 3 - skip, dims, type, strides);
#endif
}

static void forget(dnnl_memory_desc_t *md, int n)
{
#if DNNL_VERSION_MAJOR >= 3
    for (int i = 0; i < n; i++)
        if (md[i])
            dnnl_memory_desc_destroy(md[i]);
#else
    (void)md;
    (void)n;
#endif
}

/* The primitive for beta 0 or 1 (sum) and its scratchpad's bytes. */
static dnnl_status_t make_primitive(dnnl_primitive_t *primitive, size_t *scratch,
                                    dnnl_memory_desc_t md[4], int bias, int sum,
                                    dnnl_engine_t engine)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(&attr);

    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success && sum)
        s = dnnl_post_ops_create(&post);
#if DNNL_VERSION_MAJOR >= 3
    if (s == dnnl_success && sum)
        s = dnnl_post_ops_append_sum(post, 1.0f, 0, dnnl_data_type_undef);
#else
    if (s == dnnl_success && sum)
        s = dnnl_post_ops_append_sum(post, 1.0f);
#endif
    if (s == dnnl_success && sum)
        s = dnnl_primitive_attr_set_post_ops(attr, post);
#if DNNL_VERSION_MAJOR >= 3
    if (s == dnnl_success)
        s = dnnl_matmul_primitive_desc_create(&pd, engine, md[OP_A], md[OP_B],
                                              bias ? md[OP_BIAS] : NULL, md[OP_C], attr);
#else
    dnnl_matmul_desc_t desc;

    if (s == dnnl_success)
        s = dnnl_matmul_desc_init(&desc, &md[OP_A], &md[OP_B], bias ? &md[OP_BIAS] : NULL,
                                  &md[OP_C]);
    if (s == dnnl_success)
        s = dnnl_primitive_desc_create(&pd, &desc, attr, engine, NULL);
#endif
    if (s == dnnl_success) {
        size_t bytes = dnnl_memory_desc_get_size(
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));

        *scratch = bytes > *scratch ? bytes : *scratch;
        s = dnnl_primitive_create(primitive, pd);
    }
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (post)
        dnnl_post_ops_destroy(post);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return s;
}

/* Scratchpad memory is described as bytes of the larger of the two primitives. */
static dnnl_status_t make_scratch(struct ds_plan *p, dnnl_engine_t engine)
{
    dnnl_dims_t dims = {(dnnl_dim_t)p->scratch}, strides = {1};
    dnnl_memory_desc_t md;
    dnnl_status_t s;

    if (!p->scratch)
        return dnnl_success;
#if DNNL_VERSION_MAJOR >= 3
    s = dnnl_memory_desc_create_with_strides(&md, 1, dims, dnnl_u8, strides);
#else
    s = dnnl_memory_desc_init_by_strides(&md, 1, dims, dnnl_u8, strides);
#endif
    if (s == dnnl_success) {
        s = dnnl_memory_create(&p->memory[OP_SCRATCH], MD(md), engine, DNNL_MEMORY_NONE);
        forget(&md, 1);
    }
    return s;
}

static dnnl_status_t make_primitives(struct ds_plan *p, dnnl_engine_t engine)
{
    const struct ds_matmul *m = &p->product;
    dnnl_memory_desc_t md[4] = {0};
    int bias = m->epilogue == DS_EPI_BIAS, two = m->accumulate != 0;
    dnnl_status_t s = describe(&md[OP_A], m->batch, m->m, m->k, m->stride_a, m->ta ? 1 : m->lda,
                               m->ta ? m->lda : 1, m->ab);

    if (s == dnnl_success)
        s = describe(&md[OP_B], m->batch, m->k, m->n, m->stride_b, m->tb ? 1 : m->ldb,
                     m->tb ? m->ldb : 1, m->ab);
    if (s == dnnl_success)
        s = describe(&md[OP_C], m->batch, m->m, m->n, m->stride_c, m->ldc, 1, m->c);
    if (s == dnnl_success && bias) { /* (1, 1, n) where batched */
        dnnl_memory_desc_t *to = &md[OP_BIAS];
        dnnl_dims_t dims = {1, m->n, m->n}, strides = {m->n, 1, 1};
        dnnl_data_type_t type = m->ab == DS_BF16 ? dnnl_bf16 : dnnl_f32;

        if (m->batch > 1) {
            dims[1] = 1;
            strides[1] = m->n;
        }
#if DNNL_VERSION_MAJOR >= 3
        s = dnnl_memory_desc_create_with_strides(to, m->batch > 1 ? 3 : 2, dims, type, strides);
#else
        s = dnnl_memory_desc_init_by_strides(to, m->batch > 1 ? 3 : 2, dims, type, strides);
#endif
    }
    for (int i = 0; i <= two && s == dnnl_success; i++)
        s = make_primitive(&p->primitive[i], &p->scratch, md, bias, i, engine);
    for (int i = 0; i < OP_BIAS + bias && s == dnnl_success; i++)
        s = dnnl_memory_create(&p->memory[i], MD(md[i]), engine, DNNL_MEMORY_NONE);
    if (s == dnnl_success)
        s = make_scratch(p, engine);
    forget(md, 4);
    return s;
}

/* --- 16 bits through fp32 --- */

static size_t room(int64_t elements)
{
    return ((size_t)elements * sizeof(float) + 63) / 64 * 64;
}

/* The fp32 product over dense widened copies; at[] says where they lie in work. */
static void emulate(struct ds_plan *p)
{
    struct ds_matmul *m = &p->product;
    size_t at;

    p->emulated = 1;
    m->ab = DS_F32;
    m->lda = m->ldb = m->stride_a = m->stride_b = 0;
    if (m->c != DS_F32) {
        m->c = DS_F32;
        m->ldc = m->stride_c = 0;
    }
    fill_strides(m);
    p->at[OP_A] = 0;
    at = room(m->batch * m->m * m->k);
    p->at[OP_B] = at;
    at += room(m->batch * m->k * m->n);
    p->at[OP_C] = at;
    at += p->want.c != DS_F32 ? room(m->batch * m->m * m->n) : 0;
    p->at[OP_BIAS] = at;
    p->scratch = 0;
}

static size_t emulated_bytes(const struct ds_plan *p)
{
    return p->emulated ? p->at[OP_BIAS] + (p->want.epilogue == DS_EPI_BIAS ? room(p->want.n) : 0)
                       : 0;
}

/* Rows of all batch members, `row` and `stride` elements apart, to a dense fp32 array */
static void widen_rows(float *to, const void *x, enum ds_dtype t, int64_t batch, int64_t rows,
                       int64_t cols, int64_t stride, int64_t row)
{
    int64_t size = (int64_t)ds_dtype_bytes(t);

    if (row == cols) { /* in one piece */
        cols *= rows;
        rows = 1;
    }
#pragma omp parallel for collapse(2) if (batch * rows > 1)
    for (int64_t b = 0; b < batch; b++)
        for (int64_t r = 0; r < rows; r++)
            kernels_cpu.cast(to + (b * rows + r) * cols, DS_F32,
                             (const char *)x + (b * stride + r * row) * size, t, cols, NULL);
}

/* And back */
static void round_rows(void *y, enum ds_dtype t, const float *from, int64_t batch, int64_t rows,
                       int64_t cols, int64_t stride, int64_t row)
{
    int64_t size = (int64_t)ds_dtype_bytes(t);

    if (row == cols) {
        cols *= rows;
        rows = 1;
    }
#pragma omp parallel for collapse(2) if (batch * rows > 1)
    for (int64_t b = 0; b < batch; b++)
        for (int64_t r = 0; r < rows; r++)
            kernels_cpu.cast((char *)y + (b * stride + r * row) * size, t,
                             from + (b * rows + r) * cols, DS_F32, cols, NULL);
}

/* --- the table --- */

static const struct ds_plan *add_plan(struct ds_plans *t, struct ds_plan *p, char why[256])
{
    int native = p->want.ab == DS_F32 || (p->want.ab == DS_BF16 && kernels_cpu_bf16_native());
    dnnl_status_t s = dnnl_unimplemented;

    if (t->count == t->room) {
        size_t more = t->room ? 2 * t->room : 32;
        struct ds_plan **grown = realloc(t->plan, more * sizeof *grown);

        if (!grown) {
            refuse(why, "matrix product: out of memory for the table of plans");
            return NULL;
        }
        t->plan = grown;
        t->room = more;
    }
    if (native)
        s = make_primitives(p, t->engine);
    if (s != dnnl_success && p->want.ab != DS_F32) {
        emulate(p);
        s = make_primitives(p, t->engine);
    }
    if (s != dnnl_success) {
        refuse(why, "matrix product (%lld, %lld, %lld): oneDNN answered %d", (long long)p->want.m,
               (long long)p->want.n, (long long)p->want.k, (int)s);
        return NULL;
    }
    return t->plan[t->count++] = p;
}

const struct ds_plan *matmul_plan(struct ds_plans *t, const struct ds_matmul *want,
                                  size_t *work_bytes, char why[256])
{
    struct ds_matmul m = *want;
    const struct ds_plan *found = NULL;
    struct ds_plan *p;

    fill_strides(&m);
    if (check(&m, why))
        return NULL;
    for (size_t i = 0; i < t->count && !found; i++)
        if (same(&t->plan[i]->want, &m) && t->plan[i]->threads == omp_get_max_threads())
            found = t->plan[i];
    if (!found) {
        p = calloc(1, sizeof *p);
        if (!p) {
            refuse(why, "matrix product: out of memory for a plan");
            return NULL;
        }
        p->want = p->product = m;
        p->threads = omp_get_max_threads();
        p->stream = t->stream;
        found = add_plan(t, p, why);
        if (!found) {
            plan_destroy(p);
            return NULL;
        }
    }
    if (work_bytes)
        *work_bytes = 64 + emulated_bytes(found) + found->scratch;
    return found;
}

static int execute(const struct ds_plan *p, int sum, const void *ptr[OPERANDS])
{
    static const int argument[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                           DNNL_ARG_BIAS, DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t args[OPERANDS];
    int n = 0;

    for (int i = 0; i < OPERANDS; i++) {
        if (!p->memory[i])
            continue;
        if (dnnl_memory_set_data_handle(p->memory[i], (void *)(uintptr_t)ptr[i]) != dnnl_success)
            return -1;
        args[n].arg = argument[i];
        args[n++].memory = p->memory[i];
    }
    return dnnl_primitive_execute(p->primitive[sum], p->stream, n, args) == dnnl_success ? 0 : -1;
}

int matmul_run(const struct ds_plan *p, const void *a, const void *b, void *c, const void *bias,
               float beta, void *work, struct ds_stream *stream)
{
    const struct ds_matmul *w = &p->want;
    char *scratch = (char *)(((uintptr_t)work + 63) / 64 * 64);
    const void *ptr[OPERANDS] = {a, b, c, bias, scratch + emulated_bytes(p)};
    int round = p->emulated && w->c != DS_F32;
    float *sum = NULL;

    if ((beta != 0.0f && beta != 1.0f) || (beta != 0.0f && !w->accumulate) ||
        omp_get_max_threads() != p->threads)
        return -1;
    if (!p->emulated)
        return execute(p, beta != 0.0f, ptr);
    widen_rows((float *)(scratch + p->at[OP_A]), a, w->ab, w->batch, w->ta ? w->k : w->m,
               w->ta ? w->m : w->k, w->stride_a, w->lda);
    widen_rows((float *)(scratch + p->at[OP_B]), b, w->ab, w->batch, w->tb ? w->n : w->k,
               w->tb ? w->k : w->n, w->stride_b, w->ldb);
    ptr[OP_A] = scratch + p->at[OP_A];
    ptr[OP_B] = scratch + p->at[OP_B];
    if (w->epilogue == DS_EPI_BIAS) {
        widen_rows((float *)(scratch + p->at[OP_BIAS]), bias, w->ab, 1, 1, w->n, 0, w->n);
        ptr[OP_BIAS] = scratch + p->at[OP_BIAS];
    }
    if (round)
        ptr[OP_C] = sum = (float *)(scratch + p->at[OP_C]);
    if (round && beta != 0.0f)
        widen_rows(sum, c, w->c, w->batch, w->m, w->n, w->stride_c, w->ldc);
    if (execute(p, beta != 0.0f, ptr))
        return -1;
    if (round)
        round_rows(c, w->c, sum, w->batch, w->m, w->n, w->stride_c, w->ldc);
    return 0;
}
