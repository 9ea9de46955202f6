# unit tests of model: the golden values of tests/golden, through the harness of tests/sim
MODEL_TEST_SOURCES = tests/sim/guard.h tests/sim/guard.c tests/sim/layer_harness.h \
	tests/sim/layer_harness.c
MODEL_TEST_LIBS = libdsengine.a $(KERNELS_LIBS) $(DSBASE_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_model tests/unit/test_golden
TESTS += tests/unit/test_model tests/unit/test_golden
tests_unit_test_model_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_model_LDADD = $(MODEL_TEST_LIBS)
tests_unit_test_golden_SOURCES = tests/unit/test_golden.c tests/golden/golden.h tests/golden/golden.c \
	$(MODEL_TEST_SOURCES)
tests_unit_test_golden_CFLAGS = $(CMOCKA_TEST_CFLAGS) $(OPENMP_CFLAGS)
tests_unit_test_golden_LDADD = $(MODEL_TEST_LIBS)
EXTRA_DIST += tests/golden/README.md tests/golden/make_golden.py tests/golden/gpt2.safetensors tests/golden/llama.safetensors
