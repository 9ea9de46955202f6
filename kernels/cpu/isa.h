/* The CPU operators are compiled once per instruction set from the same sources; the compiler's
 * flags decide. K(name) is the symbol of this build, KERNELS_OPS the list that the table is made
 * of. */
#ifndef DS_KERNELS_CPU_ISA_H
#define DS_KERNELS_CPU_ISA_H

#include <omp.h>

#include "kernels/kernels.h"

#ifndef DS_ISA_SUFFIX
#error "compile this file with -DDS_ISA_SUFFIX=NAME (see kernels/local.mk)"
#endif
#define K_JOIN2(name, isa) name##_##isa
#define K_JOIN(name, isa) K_JOIN2(name, isa)
#define K(name) K_JOIN(name, DS_ISA_SUFFIX)

#define KERNELS_OPS(X)    \
    X(embedding_fwd)      \
    X(embedding_bwd)      \
    X(embedding_bwd_work) \
    X(layernorm_fwd)      \
    X(layernorm_bwd)      \
    X(rmsnorm_fwd)        \
    X(rmsnorm_bwd)        \
    X(norm_bwd_work)      \
    X(gelu_fwd)           \
    X(gelu_bwd)           \
    X(swiglu_fwd)         \
    X(swiglu_bwd)         \
    X(dropout_add_fwd)    \
    X(dropout_bwd)        \
    X(add)                \
    X(bias_bwd)           \
    X(rope)               \
    X(attention_work)     \
    X(attention_fwd)      \
    X(attention_bwd)      \
    X(attention_kv)       \
    X(cross_entropy)      \
    X(adamw)              \
    X(lion)               \
    X(adagrad)            \
    X(sgd)                \
    X(lamb_norms)         \
    X(lamb)               \
    X(sumsq)              \
    X(cast)               \
    X(reduce)

/* Every operator has the type of its field in struct kernels. */
#define K_DECLARE(op) extern __typeof__(*((struct kernels *)0)->op) K(op);
KERNELS_OPS(K_DECLARE)
#undef K_DECLARE

/* This thread's part [lo, hi) of n elements, cut at multiples of `unit`. Inside a parallel region.
 */
static inline void team_span(int64_t n, int64_t unit, int64_t *lo, int64_t *hi)
{
    int64_t units = (n + unit - 1) / unit, t = omp_get_thread_num(), all = omp_get_num_threads();

    *lo = units * t / all * unit;
    *hi = units * (t + 1) / all * unit;
    if (*lo > n)
        *lo = n;
    if (*hi > n)
        *hi = n;
}

/* Below this many elements a second thread costs more than it brings. */
#define TEAM_MIN 8192

#endif
