/* A JSON scanner: see jsonget.h. skip_* functions return the place behind what they skipped, NULL when it
 * is malformed; p never passes end. */
#include "launcher/jsonget.h"

#include "engine/base/parse.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH 16

static const char *blank(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    return p;
}

/* p at the opening quote. */
static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++) {
        if ((unsigned char)*p < ' ')
            return NULL;
        if (*p == '\\' && ++p == end)
            return NULL;
    }
    return p < end ? p + 1 : NULL;
}

static const char *skip_value(const char *p, const char *end, int depth);

/* p at the opening bracket. */
static const char *skip_many(const char *p, const char *end, int depth)
{
    char close = *p == '{' ? '}' : ']';
    int object = *p == '{';

    if (depth > DEPTH)
        return NULL;
    p = blank(p + 1, end);
    if (p < end && *p == close)
        return p + 1;
    for (;;) {
        if (object) {
            if (p == end || *p != '"' || !(p = skip_string(p, end)))
                return NULL;
            p = blank(p, end);
            if (p == end || *p != ':')
                return NULL;
            p = blank(p + 1, end);
        }
        p = skip_value(p, end, depth + 1);
        if (!p)
            return NULL;
        p = blank(p, end);
        if (p < end && *p == close)
            return p + 1;
        if (p == end || *p != ',')
            return NULL;
        p = blank(p + 1, end);
    }
}

static const char *skip_value(const char *p, const char *end, int depth)
{
    const char *from = p;

    if (p == end)
        return NULL;
    if (*p == '"')
        return skip_string(p, end);
    if (*p == '{' || *p == '[')
        return skip_many(p, end, depth);
    while (p < end && strchr("+-.0123456789eEtrufalsn", *p) && *p)
        p++;
    return p > from ? p : NULL;
}

int jsonget_valid(const char *text, size_t n)
{
    const char *end = text + n, *p = blank(text, end);

    if (p == end || *p != '{' || !(p = skip_many(p, end, 0)))
        return 0;
    return blank(p, end) == end;
}

/* The value at key: from..*to. NULL when it is not there. */
static const char *find(const char *text, size_t n, const char *key, const char **to)
{
    const char *end = text + n, *p = blank(text, end), *name, *value;
    size_t len = strlen(key);

    if (!jsonget_valid(text, n))
        return NULL;
    p = blank(p + 1, end);
    while (p < end && *p == '"') {
        name = p + 1;
        p = skip_string(p, end);
        size_t name_len = (size_t)(p - 1 - name);
        value = blank(blank(p, end) + 1, end);
        p = skip_value(value, end, 1);
        if (name_len == len && !memcmp(name, key, len)) {
            *to = p;
            return value;
        }
        p = blank(p, end);
        p = blank(p + (*p == ','), end);
    }
    return NULL;
}

int jsonget_number(const char *text, size_t n, const char *key, double *out)
{
    const char *to, *from = find(text, n, key, &to);
    char number[64];

    if (!from || (size_t)(to - from) >= sizeof number)
        return -1;
    memcpy(number, from, (size_t)(to - from));
    number[to - from] = 0;
    return parse_f64(number, out);
}

int jsonget_object(const char **text, size_t *n, const char *key)
{
    const char *to, *from = find(*text, *n, key, &to);

    if (!from || *from != '{')
        return -1;
    *text = from;
    *n = (size_t)(to - from);
    return 0;
}

static void add_utf8(struct buf *out, unsigned c)
{
    if (c < 0x80) {
        buf_addc(out, (char)c);
    } else if (c < 0x800) {
        buf_addc(out, (char)(0xc0 | c >> 6));
        buf_addc(out, (char)(0x80 | (c & 63)));
    } else {
        buf_addc(out, (char)(0xe0 | c >> 12));
        buf_addc(out, (char)(0x80 | (c >> 6 & 63)));
        buf_addc(out, (char)(0x80 | (c & 63)));
    }
}

int jsonget_string(const char *text, size_t n, const char *key, struct buf *out)
{
    const char *to, *p = find(text, n, key, &to), *at;
    static const char from[] = "nrtbf", as[] = "\n\r\t\b\f";

    if (!p || *p != '"')
        return -1;
    for (p++; p < to - 1; p++) {
        char hex[5] = {0};

        if (*p != '\\') {
            buf_addc(out, *p);
        } else if (*++p == 'u' && to - 1 - p > 4) {
            memcpy(hex, p + 1, 4);
            add_utf8(out, (unsigned)strtoul(hex, NULL, 16));
            p += 4;
        } else {
            at = strchr(from, *p);
            buf_addc(out, at ? as[at - from] : *p);
        }
    }
    return 0;
}
