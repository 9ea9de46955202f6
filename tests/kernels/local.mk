# tests/kernels: the reference by finite differences, then every operator of the CPU against it, once per
# instruction set.
KERNELS_CPU_TESTS = tests/kernels/cpu_plain.t tests/kernels/cpu_avx2.t \
	tests/kernels/cpu_avx512-core.t tests/kernels/cpu_avx512.t
EXTRA_DIST += $(KERNELS_CPU_TESTS)
if HAVE_CMOCKA
check_PROGRAMS += test_kernels_ref test_kernels_cpu
TESTS += test_kernels_ref $(KERNELS_CPU_TESTS)
test_kernels_ref_CFLAGS = $(CMOCKA_TEST_CFLAGS)
test_kernels_ref_SOURCES = tests/kernels/test_ref.c
test_kernels_ref_LDADD = $(KERNELS_LIBS) $(CMOCKA_LIBS)
test_kernels_cpu_CFLAGS = $(CMOCKA_TEST_CFLAGS) $(OPENMP_CFLAGS)
test_kernels_cpu_SOURCES = tests/kernels/cpu.h tests/kernels/arrays.h tests/kernels/arrays.c \
	tests/kernels/cpu_main.c tests/kernels/cpu_matmul.c tests/kernels/cpu_rows.c \
	tests/kernels/cpu_pointwise.c tests/kernels/cpu_attention.c tests/kernels/cpu_flat.c
test_kernels_cpu_LDADD = $(KERNELS_LIBS) $(CMOCKA_LIBS)
endif
