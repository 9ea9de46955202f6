# tests/box
