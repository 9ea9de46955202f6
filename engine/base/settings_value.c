/* One value of a setting: text to C field and back. Canonical text parses back to the same field.
 */
#include "engine/base/parse.h"
#include "engine/base/settings_impl.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "LO..HI", "LO..", "..HI"; "(" or ")" at an end leaves that end out; " xN" behind it: a list has
 * exactly N numbers; NULL: everything. The ends of a duration are durations. */
struct range {
    double lo, hi;
    int lo_open, hi_open;
};

static void read_end(const struct setting *row, const char *number, double *end)
{
    int64_t ms;

    if (row->type != SETTING_MS)
        parse_f64(number, end);
    else if (parse_ms(number, &ms) == 0)
        *end = (double)ms;
}

static struct range range_of(const struct setting *row)
{
    struct range r = {-INFINITY, INFINITY, 0, 0};
    const char *text = row->range, *dots = text ? strstr(text, "..") : NULL;
    char number[64];
    size_t n;

    if (!dots)
        return r;
    if (*text == '(') {
        r.lo_open = 1;
        text++;
    }
    n = (size_t)(dots - text);
    if (n && n < sizeof number) {
        memcpy(number, text, n);
        number[n] = 0;
        read_end(row, number, &r.lo);
    }
    n = strcspn(dots + 2, " ");
    if (n && dots[2 + n - 1] == ')') {
        r.hi_open = 1;
        n--;
    }
    if (n && n < sizeof number) {
        memcpy(number, dots + 2, n);
        number[n] = 0;
        read_end(row, number, &r.hi);
    }
    return r;
}

static int in_range(const struct setting *row, double v)
{
    struct range r = range_of(row);

    return (r.lo_open ? v > r.lo : v >= r.lo) && (r.hi_open ? v < r.hi : v <= r.hi);
}

#define NOT_A_FLOAT (-2)

/* Kernels and schedules compute in fp32: what becomes infinite or 0 there, or leaves the range, is no value. */
static int check_number(const struct setting *row, double v)
{
    float f = (float)v;

    if (!in_range(row, v))
        return -1;
    return in_range(row, (double)f) && fabsf(f) <= FLT_MAX && (v == 0 || fabsf(f) >= FLT_MIN) ? 0 : NOT_A_FLOAT;
}

void value_describe(const struct setting *row, struct buf *out)
{
    static const char *const kind[] = {
        [SETTING_BOOL] = "true or false",
        [SETTING_INT] = "a whole number",
        [SETTING_F64] = "a number",
        [SETTING_SIZE] = "a size (digits, then k, M, G, T or Ki, Mi, Gi, Ti)",
        [SETTING_MS] = "a duration (a number with ms, s, m, h or d; s when bare)",
        [SETTING_STR] = "a text",
        [SETTING_ENUM] = "one of ",
        [SETTING_LIST] = "numbers with commas between",
    };

    buf_adds(out, kind[row->type]);
    if (row->type == SETTING_ENUM) {
        for (const char *p = row->range; *p; p++) {
            if (*p == '|')
                buf_adds(out, ", ");
            else
                buf_addc(out, *p);
        }
    } else if (row->range && row->type != SETTING_STR && row->type != SETTING_BOOL) {
        buf_addf(out, " in %s", row->range);
    }
}

/* Index of value among the words "a|b|c", -1 when it is none of them. */
static int word_index(const char *words, const char *value)
{
    size_t n = strlen(value);

    for (int i = 0;; i++) {
        size_t len = strcspn(words, "|");

        if (len == n && strncasecmp(words, value, n) == 0)
            return i;
        if (!words[len])
            return -1;
        words += len + 1;
    }
}

static int list_parse(const struct setting *row, const char *value, struct setting_list *list)
{
    const char *length = row->range ? strstr(row->range, " x") : NULL;
    char number[64];

    list->n = 0;
    while (1) {
        size_t n = strcspn(value, ","), from = strspn(value, " \t"), to = n;

        while (to > from && (value[to - 1] == ' ' || value[to - 1] == '\t'))
            to--;
        if (from >= to || to - from >= sizeof number || list->n == 16)
            return -1;
        memcpy(number, value + from, to - from);
        number[to - from] = 0;
        if (parse_f64(number, &list->v[list->n]) < 0)
            return -1;
        if (check_number(row, list->v[list->n]) < 0)
            return check_number(row, list->v[list->n]);
        list->n++;
        if (!value[n])
            return length && list->n != atoi(length + 2) ? -1 : 0;
        value += n + 1;
    }
}

/* A whole number; 5e8 is one too, because JSON files write it so. */
static int whole_parse(const char *value, int64_t *v)
{
    double f;

    if (parse_i64(value, INT64_MIN, INT64_MAX, v) == 0)
        return 0;
    if (parse_f64(value, &f) < 0 || f != floor(f) || fabs(f) >= 0x1p53)
        return -1;
    *v = (int64_t)f;
    return 0;
}

union any {
    int i;
    int64_t i64;
    double f64;
    struct setting_list list;
};

static int any_parse(const struct setting *row, const char *value, union any *v, size_t *bytes)
{
    switch (row->type) {
    case SETTING_BOOL:
        *bytes = sizeof v->i;
        return parse_bool(value, &v->i);
    case SETTING_ENUM:
        *bytes = sizeof v->i;
        v->i = word_index(row->range, value);
        return v->i < 0 ? -1 : 0;
    case SETTING_F64:
        *bytes = sizeof v->f64;
        return parse_f64(value, &v->f64) < 0 ? -1 : check_number(row, v->f64);
    case SETTING_LIST:
        *bytes = sizeof v->list;
        memset(&v->list, 0, sizeof v->list);
        return list_parse(row, value, &v->list);
    case SETTING_INT:
    case SETTING_SIZE:
    case SETTING_MS:
        *bytes = sizeof v->i64;
        if ((row->type == SETTING_INT    ? whole_parse(value, &v->i64)
             : row->type == SETTING_SIZE ? parse_size(value, &v->i64)
                                         : parse_ms(value, &v->i64)) < 0)
            return -1;
        return in_range(row, (double)v->i64) ? 0 : -1;
    case SETTING_STR:
        break;
    }
    return -1;
}

int value_parse(const struct setting *row, const char *value, void *field, struct buf *want)
{
    union any v;
    size_t bytes = 0;
    int rc;

    if (row->type == SETTING_STR) {
        if (field) {
            free(*(char **)field);
            *(char **)field = *value ? xstrdup(value) : NULL;
        }
        return 0;
    }
    rc = any_parse(row, value, &v, &bytes);
    if (rc < 0) {
        if (want) {
            value_describe(row, want);
            buf_adds(want, rc == NOT_A_FLOAT ? ", and one that fp32 can hold" : "");
        }
        return -1;
    }
    if (field)
        memcpy(field, &v, bytes);
    return 0;
}

void number_print(double v, struct buf *out)
{
    char text[40];
    double back;

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        for (char *p = text; *p; p++)
            if (*p == ',') /* a program that links us may have set a locale */
                *p = '.';
        if (parse_f64(text, &back) == 0 && back == v)
            break;
    }
    buf_adds(out, text);
}

void value_print(const struct setting *row, const void *field, struct buf *out)
{
    union any v;

    switch (row->type) {
    case SETTING_BOOL:
        memcpy(&v.i, field, sizeof v.i);
        buf_adds(out, v.i ? "true" : "false");
        break;
    case SETTING_ENUM: {
        const char *word = row->range;

        memcpy(&v.i, field, sizeof v.i);
        for (int i = 0; i < v.i && strchr(word, '|'); i++)
            word = strchr(word, '|') + 1;
        buf_add(out, word, strcspn(word, "|"));
        break;
    }
    case SETTING_F64:
        memcpy(&v.f64, field, sizeof v.f64);
        number_print(v.f64, out);
        break;
    case SETTING_LIST:
        memcpy(&v.list, field, sizeof v.list);
        for (int i = 0; i < v.list.n; i++) {
            buf_adds(out, i ? ", " : "");
            number_print(v.list.v[i], out);
        }
        break;
    case SETTING_MS:
        memcpy(&v.i64, field, sizeof v.i64);
        if (v.i64 % 1000)
            buf_addf(out, "%lldms", (long long)v.i64);
        else
            buf_addf(out, "%lld%s", (long long)(v.i64 / 1000), v.i64 ? "s" : "");
        break;
    case SETTING_INT:
    case SETTING_SIZE:
        memcpy(&v.i64, field, sizeof v.i64);
        buf_addf(out, "%lld", (long long)v.i64);
        break;
    case SETTING_STR: {
        char *s;

        memcpy(&s, field, sizeof s);
        buf_adds(out, s ? s : "");
        break;
    }
    }
}

int value_is_default(const struct setting *row, const char *value)
{
    union any a, b;
    size_t bytes = 0;

    if (!row->def)
        return 0;
    if (row->type == SETTING_STR)
        return strcasecmp(value, row->def) == 0;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    return any_parse(row, value, &a, &bytes) == 0 && any_parse(row, row->def, &b, &bytes) == 0 &&
           memcmp(&a, &b, bytes) == 0;
}
