/* Strict readers for numbers and small words: see parse.h. Nothing here depends on the locale. */
#include "engine/base/parse.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WORD_MAX 128 /* longer words are not compared */

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int parse_i64(const char *s, int64_t lo, int64_t hi, int64_t *out)
{
    const char *p = s + (*s == '-' || *s == '+');
    int64_t v = 0;

    if (!is_digit(*p))
        return -1;
    for (; is_digit(*p); p++) {
        int digit = *p - '0';

        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, *s == '-' ? -digit : digit, &v))
            return -1;
    }
    if (*p || v < lo || v > hi)
        return -1;
    *out = v;
    return 0;
}

int parse_f64(const char *s, double *out)
{
    locale_t c;
    char *end;
    double v;

    if (!*s || strspn(s, "0123456789+-.eE") != strlen(s))
        return -1;
    c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!c)
        return -1;
    v = strtod_l(s, &end, c);
    freelocale(c);
    if (*end || end == s || !isfinite(v))
        return -1;
    *out = v;
    return 0;
}

int parse_bool(const char *s, int *out)
{
    static const char *const word[] = {"off", "on", "no", "yes", "false", "true", "0", "1"};

    for (int i = 0; i < 8; i++) {
        if (strcasecmp(s, word[i]) == 0) {
            *out = i & 1;
            return 0;
        }
    }
    return -1;
}

/* Splits s into a number text (copied to number[64]) and what follows it. */
static const char *split_number(const char *s, const char *chars, char number[64])
{
    size_t n = strspn(s, chars);

    if (!n || n >= 64 || !is_digit(*s))
        return NULL;
    memcpy(number, s, n);
    number[n] = 0;
    return s + n;
}

int parse_size(const char *s, int64_t *out)
{
    static const struct {
        const char *unit;
        int64_t factor;
    } units[] = {{"", 1},           {"k", 1000},
                 {"K", 1000},       {"M", 1000000},
                 {"G", 1000000000}, {"T", 1000000000000},
                 {"Ki", 1 << 10},   {"Mi", 1 << 20},
                 {"Gi", 1 << 30},   {"Ti", (int64_t)1 << 40}};
    char number[64];
    const char *unit = split_number(s, "0123456789.eE+", number);
    int64_t v;
    double f;

    if (!unit)
        return -1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(unit, units[i].unit) != 0)
            continue;
        if (parse_i64(number, 0, INT64_MAX, &v) < 0) {
            /* 5e8, 1.5e9: as in DeepSpeed's files. Only what is a whole number. */
            if (parse_f64(number, &f) < 0 || f != floor(f) || f >= 0x1p53)
                return -1;
            v = (int64_t)f;
        }
        if (__builtin_mul_overflow(v, units[i].factor, &v))
            return -1;
        *out = v;
        return 0;
    }
    return -1;
}

int parse_ms(const char *s, int64_t *out_ms)
{
    static const struct {
        const char *unit;
        double ms;
    } units[] = {{"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
    char number[64];
    const char *unit = split_number(s, "0123456789.", number);
    double v;

    if (!unit || parse_f64(number, &v) < 0)
        return -1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(unit, units[i].unit) == 0 && v * units[i].ms < 0x1p53) {
            *out_ms = (int64_t)llround(v * units[i].ms);
            return 0;
        }
    }
    return -1;
}

static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

/* Insertions, deletions, substitutions and swaps of neighbours between a and b; case does not
 * count. */
static int edit_distance(const char *a, const char *b)
{
    int la = (int)strlen(a), lb = (int)strlen(b);
    int row[3][WORD_MAX + 1];

    for (int j = 0; j <= lb; j++)
        row[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];

        now[0] = i;
        for (int j = 1; j <= lb; j++) {
            int d = last[j - 1] + (lower(a[i - 1]) != lower(b[j - 1]));

            if (last[j] + 1 < d)
                d = last[j] + 1;
            if (now[j - 1] + 1 < d)
                d = now[j - 1] + 1;
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]) && before[j - 2] + 1 < d)
                d = before[j - 2] + 1;
            now[j] = d;
        }
    }
    return row[la % 3][lb];
}

const char *nearest_word(const char *s, const char *const *words, size_t n)
{
    const char *best = NULL;
    int limit = 1 + (int)(strlen(s) / 4); /* one slip in four letters */

    if (strlen(s) > WORD_MAX)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        int d;

        if (strlen(words[i]) > WORD_MAX)
            continue;
        d = edit_distance(s, words[i]);
        if (d <= limit) {
            best = words[i];
            limit = d - 1;
        }
    }
    return best;
}

int glob_match(const char *pattern, const char *s)
{
    const char *star = NULL, *resume = NULL;

    while (*s) {
        if (*pattern == '*') {
            star = pattern++;
            resume = s;
        } else if (*pattern == '?' || (*pattern && *pattern == *s)) {
            pattern++;
            s++;
        } else if (star) {
            pattern = star + 1;
            s = ++resume;
        } else {
            return 0;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

int parse_help(int argc, char **argv, const char *usage)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            puts(usage);
            return 1;
        }
    return 0;
}
