# tests/sim
