# DS_WARNINGS: the house's warning flags in DS_CFLAGS.
AC_DEFUN([DS_WARNINGS], [
  DS_CFLAGS="-std=gnu11 -fvisibility=hidden -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-unused-parameter"
  AS_IF([test "x$enable_werror" = xyes], [DS_CFLAGS="$DS_CFLAGS -Werror"])
  AC_SUBST([DS_CFLAGS])
])
AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [warnings are errors])])

# DS_SUMMARY_LINE(NAME, VALUE): one line of the table that configure prints last.
m4_define([DS_SUMMARY_LINE], [ds_summary="$ds_summary
  $(printf '%-22s' "$1") $2"])

AC_DEFUN([DS_SUMMARY], [
  AS_ECHO(["
ds-launch $PACKAGE_VERSION

  compiler               $CC $CFLAGS
  prefix                 $prefix$ds_summary

Next: make, make check, make install
"])
])

# DS_NEED_PKG(VARIABLE, MODULE, DEBIAN-PACKAGE): a library that the build cannot do without.
AC_DEFUN([DS_NEED_PKG], [
  PKG_CHECK_MODULES([$1], [$2], [DS_SUMMARY_LINE([$2], [yes ($($PKG_CONFIG --modversion "$2" | head -1))])],
    [AC_MSG_ERROR([$2 is needed: install $3 (or set $1_CFLAGS and $1_LIBS)])])
])

# DS_WITH_PKG(VARIABLE, MODULE, DEBIAN-PACKAGE, WHAT-FOR): an optional library, --with-MODULE=no|guess|yes.
# HAVE_VARIABLE is 1 or 0 in config.h.
AC_DEFUN([DS_WITH_PKG], [
  AC_ARG_WITH([$2], [AS_HELP_STRING([--with-$2=no|guess|yes], [$4; guess (the default): where it is installed])],
    [], [with_$2=guess])
  ds_have_$2=0
  AS_CASE(["$with_$2"],
    [no], [DS_SUMMARY_LINE([$2], [no (--without-$2)])],
    [guess|yes], [PKG_CHECK_MODULES([$1], [$2],
      [ds_have_$2=1
       DS_SUMMARY_LINE([$2], [yes ($($PKG_CONFIG --modversion "$2"))])],
      [AS_IF([test "x$with_$2" = xyes], [AC_MSG_ERROR([$2 was asked for: install $3 (or set $1_CFLAGS and $1_LIBS)])])
       DS_SUMMARY_LINE([$2], [no ($3 is not installed): without $4])])],
    [AC_MSG_ERROR([--with-$2=$with_$2: give no, guess or yes])])
  AC_DEFINE_UNQUOTED([HAVE_$1], [$ds_have_$2], [Is $2 there?])
  AC_SUBST([$1_CFLAGS])
  AC_SUBST([$1_LIBS])
])
