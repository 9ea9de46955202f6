# unit tests of ckpt
check_PROGRAMS += tests/unit/test_ckpt
TESTS += tests/unit/test_ckpt
tests_unit_test_ckpt_CFLAGS = $(CMOCKA_TEST_CFLAGS)
tests_unit_test_ckpt_LDADD = libdsengine.a $(DSBASE_LIBS) $(CMOCKA_LIBS)
EXTRA_DIST += tests/golden/ckpt/manifest.json tests/golden/ckpt/rank-0.safetensors
