# kernels: OpenMP, and oneDNN for matrix products.
AC_OPENMP
AC_CHECK_HEADER([dnnl.h], [], [AC_MSG_ERROR([oneDNN is needed: install libdnnl-dev])])
AC_CHECK_LIB([dnnl], [dnnl_engine_create], [DNNL_LIBS=-ldnnl],
  [AC_MSG_ERROR([oneDNN is needed: install libdnnl-dev])])
AC_SUBST([DNNL_LIBS])
DS_SUMMARY_LINE([oneDNN], [yes])
AC_CANONICAL_HOST
AS_CASE([$host_cpu], [x86_64|amd64], [ds_x86=yes], [ds_x86=no])
AM_CONDITIONAL([KERNELS_X86], [test $ds_x86 = yes])
DS_SUMMARY_LINE([kernels], [plain$(test $ds_x86 = yes && echo ', avx2, avx512, avx512 with bf16')])
