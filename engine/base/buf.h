/* A growing byte buffer that is always NUL-terminated, and an array macro over it.
 * Allocation failure ends the process: no caller can go on without memory of this size. */
#ifndef DS_BASE_BUF_H
#define DS_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data; /* never NULL after the first append; data[len] == 0; owned */
    size_t len, cap;
};

#define BUF_INIT {0}

void buf_clear(struct buf *b); /* frees, back to BUF_INIT */
void buf_reset(struct buf *b); /* length 0, keeps the memory */
void buf_reserve(struct buf *b, size_t more);
void buf_add(struct buf *b, const void *data, size_t n);
void buf_adds(struct buf *b, const char *s);
void buf_addc(struct buf *b, char c);
void buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vaddf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
void buf_drop(struct buf *b, size_t n); /* removes the first n bytes (n <= len) */
char *buf_detach(struct buf *b);        /* the string, owned by the caller; b back to BUF_INIT */
const char *buf_str(const struct buf *b); /* "" when nothing was added */

/* Appends s as the inside of a JSON string, quotes not included; invalid UTF-8 becomes U+FFFD. */
void buf_add_json(struct buf *b, const char *s, size_t n);
/* Appends s as one word for a shell, in single quotes. */
void buf_add_quoted(struct buf *b, const char *s);

/* malloc family that does not return NULL; n * size is checked for overflow. */
void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Makes room for one more element of array p holding n with capacity cap: ARRAY_GROW(a, n, cap). */
#define ARRAY_GROW(p, n, cap)                                                                      \
    do {                                                                                           \
        if ((n) >= (cap)) {                                                                        \
            (cap) = (cap) ? (cap)*2 : 8;                                                           \
            (p) = xrealloc((p), (size_t)(cap) * sizeof *(p));                                      \
        }                                                                                          \
    } while (0)

#endif
