# tests/lint
