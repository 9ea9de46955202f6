/* The parts of test_cpu: each operator of kernels_cpu against kernels/ref, in f32, bf16 and f16. */
#ifndef DS_TESTS_KERNELS_CPU_H
#define DS_TESTS_KERNELS_CPU_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/ref/ref.h"
#include "tests/kernels/arrays.h"

#define TYPES 3
static inline enum ds_dtype type(size_t k)
{
    static const enum ds_dtype types[TYPES] = {DS_F32, DS_BF16, DS_F16};

    return types[k % TYPES];
}

/* Allowed error per element as in array_check: a few rounding errors of fp32; for 16 bits the one
 * rounding of the result (UNIT) with room for results that lie near a rounding boundary. */
#define TOL_F32 4e-6
#define UNIT(dt) ((dt) == DS_BF16 ? 0x1p-8 : 0x1p-11)
#define TOL(dt) ((dt) == DS_F32 ? TOL_F32 : 1.125 * UNIT(dt))

void test_matmul(void **state);
void test_matmul_f16(void **state);
void test_matmul_refusals(void **state);
void test_embedding(void **state);
void test_layernorm(void **state);
void test_rmsnorm(void **state);
void test_bias(void **state);
void test_gelu(void **state);
void test_swiglu(void **state);
void test_add(void **state);
void test_rope(void **state);
void test_dropout(void **state);
void test_dropout_share(void **state);
void test_attention(void **state);
void test_attention_causal(void **state);
void test_attention_kv(void **state);
void test_cross_entropy(void **state);
void test_optimizers(void **state);
void test_sumsq(void **state);
void test_cast(void **state);
void test_f16(void **state);
void test_reduce(void **state);
void test_threads(void **state);

#endif
