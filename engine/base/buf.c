/* Byte buffers and the malloc family that does not return NULL: see buf.h. Invariant: data is NULL
 * and cap is 0, or len < cap and data[len] == 0. */
#include "engine/base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void out_of_memory(size_t n) __attribute__((noreturn));
static void out_of_memory(size_t n)
{
    char text[96];
    int len = snprintf(text, sizeof text, "out of memory: %zu bytes could not be allocated\n", n);
    ssize_t done = write(STDERR_FILENO, text, (size_t)len);

    (void)done;
    _exit(1);
}

void *xmalloc(size_t n)
{
    void *p = malloc(n ? n : 1);

    if (!p)
        out_of_memory(n);
    return p;
}

void *xcalloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);

    if (!p)
        out_of_memory(size && n > SIZE_MAX / size ? SIZE_MAX : n * size);
    return p;
}

void *xrealloc(void *p, size_t n)
{
    void *q = realloc(p, n ? n : 1);

    if (!q)
        out_of_memory(n);
    return q;
}

char *xstrdup(const char *s)
{
    return xstrndup(s, strlen(s));
}

char *xstrndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *copy = xmalloc(len + 1);

    memcpy(copy, s, len);
    copy[len] = 0;
    return copy;
}

char *xasprintf(const char *fmt, ...)
{
    struct buf b = BUF_INIT;
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    return buf_detach(&b);
}

void buf_clear(struct buf *b)
{
    free(b->data);
    *b = (struct buf)BUF_INIT;
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = 0;
}

void buf_reserve(struct buf *b, size_t more)
{
    size_t need, cap;

    if (more >= SIZE_MAX / 2 - b->len)
        out_of_memory(more);
    need = b->len + more + 1;
    if (need <= b->cap)
        return;
    cap = b->cap ? b->cap : 64;
    while (cap < need)
        cap += cap / 2;
    b->data = xrealloc(b->data, cap);
    b->cap = cap;
    b->data[b->len] = 0;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
    buf_reserve(b, n);
    if (n)
        memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = 0;
}

void buf_adds(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_addc(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_vaddf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    int n;

    va_copy(again, ap);
    buf_reserve(b, 0);
    n = vsnprintf(b->data + b->len, b->cap - b->len, fmt, ap);
    if (n > 0 && (size_t)n >= b->cap - b->len) {
        buf_reserve(b, (size_t)n);
        n = vsnprintf(b->data + b->len, b->cap - b->len, fmt, again);
    }
    va_end(again);
    if (n > 0)
        b->len += (size_t)n;
    b->data[b->len] = 0;
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(b, fmt, ap);
    va_end(ap);
}

void buf_drop(struct buf *b, size_t n)
{
    if (!n)
        return;
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
    b->data[b->len] = 0;
}

char *buf_detach(struct buf *b)
{
    char *s;

    buf_reserve(b, 0);
    s = b->data;
    *b = (struct buf)BUF_INIT;
    return s;
}

const char *buf_str(const struct buf *b)
{
    return b->data ? b->data : "";
}

/* Length of the valid UTF-8 sequence at s (n bytes are there), 0 when there is none: no overlong
 * forms, no surrogates, nothing above U+10FFFF. */
static size_t utf8_length(const unsigned char *s, size_t n)
{
    size_t len = s[0] < 0x80   ? 1
                 : s[0] < 0xc2 ? 0
                 : s[0] < 0xe0 ? 2
                 : s[0] < 0xf0 ? 3
                 : s[0] < 0xf5 ? 4
                               : 0;

    if (!len || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return len;
}

void buf_add_quoted(struct buf *b, const char *s)
{
    buf_addc(b, '\'');
    for (; *s; s++)
        if (*s == '\'')
            buf_adds(b, "'\\''");
        else
            buf_addc(b, *s);
    buf_addc(b, '\'');
}

void buf_add_json(struct buf *b, const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;

    for (size_t i = 0; i < n;) {
        size_t len = utf8_length(u + i, n - i);

        if (!len) {
            buf_adds(b, "\xef\xbf\xbd");
            i++;
            continue;
        }
        if (len > 1)
            buf_add(b, s + i, len);
        else if (s[i] == '"' || s[i] == '\\')
            buf_addf(b, "\\%c", s[i]);
        else if (s[i] == '\n')
            buf_adds(b, "\\n");
        else if (s[i] == '\t')
            buf_adds(b, "\\t");
        else if (u[i] < 0x20 || u[i] == 0x7f)
            buf_addf(b, "\\u%04x", u[i]);
        else
            buf_addc(b, s[i]);
        i += len;
    }
}
