/* One table row per setting. The rows parse INI and JSON, fill a plain C struct, print
 * `ds-launch info --settings`, and word the errors (file, line, nearest known name).
 *
 * A path is SECTION.KEY, or KEY alone at the top level: "zero_optimization.stage" is the INI key stage
 * in [zero_optimization] and the same object path in DeepSpeed's JSON.
 */
#ifndef DS_BASE_SETTINGS_H
#define DS_BASE_SETTINGS_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <stddef.h>
#include <stdint.h>

enum setting_type {
    SETTING_BOOL, /* int 0|1 */
    SETTING_INT,  /* int64_t */
    SETTING_F64,  /* double */
    SETTING_SIZE, /* int64_t, parse_size */
    SETTING_MS,   /* int64_t milliseconds, parse_ms; "0" = off or no limit, as help says */
    SETTING_STR,  /* char *, owned by the config struct */
    SETTING_ENUM, /* int: index into the words of range "a|b|c" (any case) */
    SETTING_LIST, /* struct setting_list of numbers: "0.9, 0.95" or a JSON array */
};

struct setting_list {
    int n;
    double v[16];
};

enum setting_flags {
    SETTING_IDENTITY = 1,   /* part of what makes two runs the same run: in the config hash */
    SETTING_REFUSED = 2,    /* known in DeepSpeed, would change the result, not supported: error unless
                             * given its default */
    SETTING_IGNORED = 4,    /* known in DeepSpeed, would not change the result: warning */
    SETTING_ALIAS = 8,      /* another spelling: def holds the real path */
    SETTING_PREFIX = 16,    /* path is a section whose every key is REFUSED or IGNORED as flagged */
};

struct setting {
    const char *path;
    enum setting_type type;
    size_t offset;     /* of the field in the config struct; unused with REFUSED, IGNORED, ALIAS */
    const char *def;   /* default as text; NULL: none (number fields are 0, strings NULL) */
    const char *range; /* "1..65536", "0..", "0..1" (ends included), "(0..": open end; LIST: "0..1) x2",
                        * exactly two; ENUM: words */
    const char *unit;  /* "bytes", "ms", "tokens" ...; "" when it has none */
    unsigned flags;
    const char *help;  /* one line */
};

/* A table bound to a struct. Several tables can be read from one file (ours, and each layer's own). */
struct settings {
    const struct setting *table;
    int n;
    void *config;   /* the struct that offsets point into; borrowed */
    uint8_t *given; /* [n] 1 where the file or an override set it; owned */
};

/* Binds and fills in the defaults. */
void settings_init(struct settings *s, const struct setting *table, int n, void *config);
/* Frees given and every string field; the config struct is zeroed. */
void settings_clear(struct settings *s);

/* Was this path given by the user? path must be in the table. */
int settings_given(const struct settings *s, const char *path);

/* Sets one value; where ("job.ini:12" or "--set") opens the error sentence. 0 or -1. */
int settings_set(struct settings *s, const char *path, const char *value, const char *where,
                 struct err *err);

/* A file read into rows, in order; the text form that travels to the ranks. */
struct settings_row {
    char *path, *value, *where; /* where: "FILE:LINE" */
};
struct settings_rows {
    struct settings_row *row;
    int n, cap;
};

/* Reads INI (through inih, with long lines, duplicates, continuation lines, NUL bytes and text behind a
 * section header refused) or JSON (through jansson; nested objects become paths, arrays lists).
 * settings_read picks by the first non-blank byte ('{' = JSON) after a UTF-8 byte-order mark. name is
 * what errors call the file. All errors of a file come in one go, one line each. Rows owned by the
 * caller: settings_rows_clear. */
int settings_read(struct settings_rows *rows, const char *name, const char *text, size_t len,
                  struct err *err);
int settings_read_file(struct settings_rows *rows, const char *path, struct err *err);
void settings_rows_add(struct settings_rows *rows, const char *path, const char *value,
                       const char *where); /* copies; replaces an earlier row of this path */
void settings_rows_clear(struct settings_rows *rows);
/* Prints rows as INI text that settings_read gives back as the same rows. settings_rows_ship also puts a line
 * ";@ WHERE" in front of each, which settings_read takes for the place of the setting below it: what a rank
 * complains about is then named by the user's own file and line. */
void settings_rows_print(const struct settings_rows *rows, struct buf *out);
void settings_rows_ship(const struct settings_rows *rows, struct buf *out);

/* Applies rows to n bound tables: each row must be known to at least one. Errors (unknown key with
 * the nearest name, bad value, REFUSED) are collected, one line each, up to the bound of err.
 * warnings (IGNORED keys) are appended to warn as lines, may be NULL. Unknown rows whose path begins with
 * skip are left alone (NULL: none): the front end does not know the keys of a user's own layers, the
 * rank does. 0 or -1. */
int settings_apply(struct settings *const *tables, int ntables, const struct settings_rows *rows,
                   const char *skip, struct buf *warn, struct err *err);

/* XXH3 over "path=value\n" of the IDENTITY rows in table order, values in canonical form. */
uint64_t settings_hash(const struct settings *s);
/* The canonical text of a value as it stands in the config struct. */
void settings_value(const struct settings *s, int i, struct buf *out);
/* The table as text: path, default, range, unit, help; one block per setting, for `info --settings`. */
void settings_help(const struct setting *table, int n, struct buf *out);

#endif
