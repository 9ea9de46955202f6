# base: job files (inih), JSON (jansson), hashes (xxhash), threads.
DS_NEED_PKG([INIH], [inih], [libinih-dev])
DS_NEED_PKG([JANSSON], [jansson], [libjansson-dev])
DS_NEED_PKG([XXHASH], [libxxhash], [libxxhash-dev])
AC_SEARCH_LIBS([pthread_create], [pthread])
