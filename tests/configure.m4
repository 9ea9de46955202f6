# tests: cmocka for unit tests.
PKG_CHECK_MODULES([CMOCKA], [cmocka], [ds_have_cmocka=yes], [ds_have_cmocka=no])
AM_CONDITIONAL([HAVE_CMOCKA], [test $ds_have_cmocka = yes])
DS_SUMMARY_LINE([cmocka], [$ds_have_cmocka (unit tests)])
