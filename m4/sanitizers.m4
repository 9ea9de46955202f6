# DS_SANITIZERS: --enable-asan (address and undefined behaviour), --enable-tsan (threads).
AC_DEFUN([DS_SANITIZERS], [
  AC_ARG_ENABLE([asan], [AS_HELP_STRING([--enable-asan], [build with AddressSanitizer and UBSan])])
  AC_ARG_ENABLE([tsan], [AS_HELP_STRING([--enable-tsan], [build with ThreadSanitizer])])
  ds_sanitizer=none
  AS_IF([test "x$enable_asan" = xyes && test "x$enable_tsan" = xyes],
    [AC_MSG_ERROR([--enable-asan and --enable-tsan exclude each other])])
  AS_IF([test "x$enable_asan" = xyes], [
    ds_sanitizer="address, undefined"
    DS_SANFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g"])
  AS_IF([test "x$enable_tsan" = xyes], [
    ds_sanitizer=thread
    DS_SANFLAGS="-fsanitize=thread -fno-omit-frame-pointer -g"])
  AC_SUBST([DS_SANFLAGS])
  AM_CONDITIONAL([SANITIZED], [test "$ds_sanitizer" != none])
  AM_CONDITIONAL([ASAN], [test "x$enable_asan" = xyes])
  AM_CONDITIONAL([TSAN], [test "x$enable_tsan" = xyes])
  DS_SUMMARY_LINE([sanitizer], [$ds_sanitizer])
])
