# tests/lint: rules of the house that a script can check.
LINT_TESTS = tests/lint/includes.t tests/lint/headers.t tests/lint/names.t tests/lint/size.t tests/lint/readme.t \
	tests/lint/job-manual.t tests/lint/dist.t
TESTS += $(LINT_TESTS)
EXTRA_DIST += $(LINT_TESTS)
