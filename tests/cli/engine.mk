# cli tests of engine
TESTS += tests/cli/engine.t tests/cli/templates.t tests/cli/full_disk.t
EXTRA_DIST += tests/cli/engine.t tests/cli/templates.t tests/cli/full_disk.t
