/* Strict readers for numbers and small words: the whole string or nothing, no locale, no octal. */
#ifndef DS_BASE_PARSE_H
#define DS_BASE_PARSE_H

#include <stddef.h>
#include <stdint.h>

/* 0 and *out set, or -1 (not a number, junk behind it, out of [lo, hi]); *out unchanged then. */
int parse_i64(const char *s, int64_t lo, int64_t hi, int64_t *out);
int parse_f64(const char *s, double *out); /* finite only */

/* on|off, yes|no, true|false, 1|0; any case. */
int parse_bool(const char *s, int *out);

/* A size: digits with an optional k, M, G, T (1000s) or Ki, Mi, Gi, Ti (1024s); 5e8 is accepted. */
int parse_size(const char *s, int64_t *out);

/* A duration in milliseconds: digits, optionally a fraction, with ms, s, m, h or d; bare = seconds. */
int parse_ms(const char *s, int64_t *out_ms);

/* The entry of words[n] nearest to s by edit distance, NULL when none is near enough to suggest. */
const char *nearest_word(const char *s, const char *const *words, size_t n);

/* 1 when -h or --help is among the arguments behind argv[0]; usage is then on stdout. */
int parse_help(int argc, char **argv, const char *usage);

/* Shell-style match of * and ? only. */
int glob_match(const char *pattern, const char *s);

#endif
