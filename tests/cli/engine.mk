# cli tests of engine
TESTS += tests/cli/engine.t tests/cli/templates.t
EXTRA_DIST += tests/cli/engine.t tests/cli/templates.t
