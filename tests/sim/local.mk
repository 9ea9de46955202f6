# tests/sim: N ranks, as threads or processes
include tests/sim/comm.mk
