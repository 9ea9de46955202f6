# kernels: OpenMP, and oneDNN for matrix products.
AC_OPENMP
AC_CHECK_HEADER([dnnl.h], [], [AC_MSG_ERROR([oneDNN is needed: install libdnnl-dev])])
AC_CHECK_LIB([dnnl], [dnnl_engine_create], [DNNL_LIBS=-ldnnl],
  [AC_MSG_ERROR([oneDNN is needed: install libdnnl-dev])])
AC_SUBST([DNNL_LIBS])
DS_SUMMARY_LINE([oneDNN], [yes])
