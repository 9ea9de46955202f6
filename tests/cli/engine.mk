# cli tests of engine
TESTS += tests/cli/engine.t
EXTRA_DIST += tests/cli/engine.t
