/* What the files of settings share among themselves. Included by settings*.c only. */
#ifndef DS_BASE_SETTINGS_IMPL_H
#define DS_BASE_SETTINGS_IMPL_H

#include "engine/base/settings.h"

/* The errors of a whole file: one line each, the ones beyond the bound of struct err only counted.
 */
struct errors {
    struct buf text;
    int n, more;
};
void errors_add(struct errors *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* 0 when there were none, else -1 and all of them in err. Frees. */
int errors_done(struct errors *e, struct err *err);

/* Parses value as row says and stores it at field (of the row's type; NULL: only checks). 0, or -1
 * and what was expected in want ("a whole number in 1..65536"). A SETTING_STR field is freed first.
 */
int value_parse(const struct setting *row, const char *value, void *field, struct buf *want);
/* Canonical text of the field. */
void value_print(const struct setting *row, const void *field, struct buf *out);
/* What value_parse takes, in words. */
void value_describe(const struct setting *row, struct buf *out);
/* Does value say the same as the row's default? */
int value_is_default(const struct setting *row, const char *value);

/* The shortest decimal that reads back as v. */
void number_print(double v, struct buf *out);

/* Row of this path, -1 when it is not there. */
int settings_find(const struct setting *table, int n, const char *path);
/* Stores value in row i of s: one sentence in errors when it does not parse. */
int settings_store(struct settings *s, int i, const char *path, const char *value,
                   const char *where, struct errors *errors);

/* Readers of one form each: rows and errors are appended. */
void ini_read(struct settings_rows *rows, const char *name, const char *text, size_t len,
              struct errors *errors);
void json_read(struct settings_rows *rows, const char *name, const char *text, size_t len,
               struct errors *errors);
/* NULL when value can be carried in an INI line unchanged, else what stands in the way. */
const char *value_not_carried(const char *value);
/* Letters, digits, _ and -, joined by single dots. */
int path_is_valid(const char *path);
/* Row of this path among rows, NULL when it is not there. */
const struct settings_row *rows_find(const struct settings_rows *rows, const char *path);

#endif
