# tests/fuzz: one LLVMFuzzerTestOneInput per parser, replayed over its corpus by make check.
include tests/fuzz/base.mk
include tests/fuzz/hostfile.mk
include tests/fuzz/launcher.mk
include tests/fuzz/data.mk
include tests/fuzz/ckpt.mk
