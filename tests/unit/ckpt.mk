# unit tests of ckpt
CKPT_TEST_LIBS = libdsengine.a $(DSBASE_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/test_ckpt tests/unit/test_ckpt_format
TESTS += tests/unit/test_ckpt tests/unit/test_ckpt_format
tests_unit_test_ckpt_SOURCES = tests/unit/test_ckpt.c tests/unit/ckpt_model.h
tests_unit_test_ckpt_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_ckpt_LDADD = $(CKPT_TEST_LIBS)
tests_unit_test_ckpt_format_SOURCES = tests/unit/test_ckpt_format.c tests/unit/ckpt_model.h
tests_unit_test_ckpt_format_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_ckpt_format_LDADD = $(CKPT_TEST_LIBS)
EXTRA_DIST += tests/golden/ckpt/manifest.json tests/golden/ckpt/rank-0.safetensors
