/* Runs the tests of kernels_cpu for the instruction set that DS_ISA names. */
#include <omp.h>

#include "tests/kernels/cpu.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),       cmocka_unit_test(test_matmul_refusals),
        cmocka_unit_test(test_matmul_f16),   cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_rmsnorm),      cmocka_unit_test(test_bias),
        cmocka_unit_test(test_gelu),         cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_add),          cmocka_unit_test(test_rope),
        cmocka_unit_test(test_dropout),      cmocka_unit_test(test_dropout_share),
        cmocka_unit_test(test_attention),    cmocka_unit_test(test_attention_causal),
        cmocka_unit_test(test_attention_kv), cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_optimizers),        cmocka_unit_test(test_sumsq),
        cmocka_unit_test(test_cast),         cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_f16),
    };

#if defined __SANITIZE_THREAD__
    omp_set_num_threads(1); /* libgomp's barriers are invisible to it */
#endif
    kernels_cpu_thread_init();
    return cmocka_run_group_tests_name(kernels_cpu_isa(), tests, NULL, NULL);
}
