#!/bin/sh
# Every operator for one instruction set (or the best below it that the processor has).
DS_ISA=avx512 exec "${top_builddir:-.}/test_kernels_cpu"
