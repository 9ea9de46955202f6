# engine/base: the floor that everyone may stand on.
noinst_LIBRARIES += libdsbase.a
libdsbase_a_CFLAGS = $(AM_CFLAGS) $(INIH_CFLAGS) $(JANSSON_CFLAGS) $(XXHASH_CFLAGS)
libdsbase_a_SOURCES = engine/base/buf.c engine/base/buf.h \
	engine/base/build.c engine/base/build.h \
	engine/base/clock.c engine/base/clock.h \
	engine/base/err.c engine/base/err.h \
	engine/base/fault.c engine/base/fault.h \
	engine/base/hash.c engine/base/hash.h \
	engine/base/log.c engine/base/log.h \
	engine/base/parse.c engine/base/parse.h \
	engine/base/rng.c engine/base/rng.h \
	engine/base/wire.c engine/base/wire.h \
	engine/base/frag.c engine/base/frag.h engine/base/link.c engine/base/link.h \
	engine/base/json.c engine/base/json.h \
	engine/base/boot.h engine/base/job.c engine/base/job.h engine/base/job_table.c \
	engine/base/settings.c engine/base/settings.h engine/base/settings_apply.c \
	engine/base/settings_impl.h engine/base/settings_ini.c engine/base/settings_json.c \
	engine/base/settings_read.c engine/base/settings_value.c
EXTRA_DIST += engine/base/README.md
DSBASE_LIBS = libdsbase.a $(INIH_LIBS) $(JANSSON_LIBS) $(XXHASH_LIBS) -lpthread -lm

# The build's identity: a hash over what it is made from, rewritten only when that changed.
nodist_libdsbase_a_SOURCES = build_hash.h
BUILT_SOURCES = build_hash.h
CLEANFILES += build_hash.h
engine/base/libdsbase_a-build.$(OBJEXT): build_hash.h
build_hash.h: build-hash-always
	@{ echo "$(CC) $(CFLAGS) $(AM_CFLAGS) $(PACKAGE_VERSION)"; cat config.h; cd $(srcdir) && \
	  find engine kernels hostfile elastic launcher -name '*.[ch]' -o -name '*.cu' | LC_ALL=C sort | \
	  xargs cat; } | sha256sum | sed 's/^\(.\{16\}\).*/#define BUILD_HASH "\1"/' >$@.new && \
	if cmp -s $@.new $@; then rm -f $@.new; else mv $@.new $@; fi
build-hash-always:
.PHONY: build-hash-always
