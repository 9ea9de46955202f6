# kernels: the arithmetic. ref/ is plain C in double, cpu/ the fast one. The operators of cpu/ are compiled
# once per instruction set; dispatch.c picks one at run time.
EXTRA_DIST += kernels/README.md
noinst_LIBRARIES += libkernels.a libkernels_plain.a
KERNELS_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) -fno-math-errno -fno-trapping-math
KERNELS_OPS = kernels/kernels.h kernels/cpu/isa.h kernels/cpu/vec.h kernels/cpu/philox.h \
	kernels/cpu/tile.h kernels/cpu/attention_pack.h kernels/cpu/tables.h \
	kernels/cpu/embedding.c kernels/cpu/norm.c kernels/cpu/pointwise.c kernels/cpu/dropout.c \
	kernels/cpu/attention.c kernels/cpu/attention_kv.c kernels/cpu/loss.c kernels/cpu/optim.c \
	kernels/cpu/array.c kernels/cpu/table.c

libkernels_a_CFLAGS = $(KERNELS_CFLAGS) $(KERNELS_X86_CFLAGS)
libkernels_a_SOURCES = kernels/kernels.h kernels/cpu/tables.h kernels/cpu/dispatch.c \
	kernels/cpu/matmul.c kernels/ref/ref.h kernels/ref/matmul.c kernels/ref/embedding.c \
	kernels/ref/norm.c kernels/ref/pointwise.c kernels/ref/dropout.c kernels/ref/attention.c \
	kernels/ref/loss.c kernels/ref/optim.c

libkernels_plain_a_CFLAGS = $(KERNELS_CFLAGS) -DDS_ISA_SUFFIX=plain
libkernels_plain_a_SOURCES = $(KERNELS_OPS)
KERNELS_ISA_LIBS = libkernels_plain.a

if KERNELS_X86
KERNELS_X86_CFLAGS = -DDS_KERNELS_X86
noinst_LIBRARIES += libkernels_avx2.a libkernels_avx512.a libkernels_avx512bf16.a
libkernels_avx2_a_CFLAGS = $(KERNELS_CFLAGS) -DDS_ISA_SUFFIX=avx2 -mavx2 -mfma -mf16c
libkernels_avx2_a_SOURCES = $(KERNELS_OPS)
KERNELS_AVX512 = -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq \
	-mprefer-vector-width=512
libkernels_avx512_a_CFLAGS = $(KERNELS_CFLAGS) -DDS_ISA_SUFFIX=avx512 $(KERNELS_AVX512)
libkernels_avx512_a_SOURCES = $(KERNELS_OPS)
libkernels_avx512bf16_a_CFLAGS = $(KERNELS_CFLAGS) -DDS_ISA_SUFFIX=avx512bf16 $(KERNELS_AVX512) \
	-mavx512bf16
libkernels_avx512bf16_a_SOURCES = $(KERNELS_OPS)
KERNELS_ISA_LIBS += libkernels_avx2.a libkernels_avx512.a libkernels_avx512bf16.a
endif

KERNELS_LIBS = libkernels.a $(KERNELS_ISA_LIBS) $(DNNL_LIBS) $(OPENMP_CFLAGS) -lm
EXTRA_DIST += kernels/cpu/README.md kernels/ref/README.md
