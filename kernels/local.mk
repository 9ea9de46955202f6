# kernels: the arithmetic. ref/ is plain C in double, cpu/ the fast one.
noinst_LIBRARIES += libkernels.a
libkernels_a_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) -O3
libkernels_a_SOURCES = kernels/kernels.h
KERNELS_LIBS = libkernels.a $(DNNL_LIBS) $(OPENMP_CFLAGS) -lm
