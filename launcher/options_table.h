/* The rows of the command line, as options.c and options_torch.c fill them. */
#ifndef DS_OPTIONS_TABLE_H
#define DS_OPTIONS_TABLE_H

#include "launcher/options.h"

#include <stddef.h>

enum option_kind {
    OPT_FLAG,    /* int = 1 */
    OPT_INT,     /* int in lo..hi */
    OPT_MS,      /* int64_t milliseconds */
    OPT_STR,     /* char *, not empty */
    OPT_WORD,    /* char *, one of the words in extra ("a|b") */
    OPT_LIST,    /* char **, one more element */
    OPT_SET,     /* PATH=VALUE into set */
    OPT_ROW,     /* value of the setting whose path is extra */
    OPT_NOTHING, /* accepted, no effect; extra says why */
    OPT_REFUSED, /* extra says why */
    OPT_TORCH,   /* a word of torchrun: options_torch.c */
    OPT_HELP,
    OPT_VERSION,
};

struct option_row {
    const char *name; /* with '-' between words; NULL: a heading of --help, which is help */
    char letter;      /* 0: none */
    enum option_kind kind;
    size_t offset;
    int64_t lo, hi;
    const char *arg;   /* what --help calls the value; NULL: the flag takes none */
    const char *extra; /* by kind */
    const char *help;
};

#define AT(field) offsetof(struct options, field)
#define HEAD(text) {NULL, 0, OPT_FLAG, 0, 0, 0, NULL, NULL, text}
#define REFUSED(name, arg, why) {name, 0, OPT_REFUSED, 0, 0, 0, arg, why, NULL}
#define NOTHING(name, arg, why) {name, 0, OPT_NOTHING, 0, 0, 0, arg, why, NULL}

/* Row i of all tables, NULL behind the last. */
const struct option_row *options_row(int i);
/* options_use.c. What --help prints; command: of ours, its own options only; NULL or another word: everything. */
void options_help(const char *command, struct buf *out);

/* torchrun's words: a table of its own, and how an OPT_TORCH row stores its value. */
extern const struct option_row options_torch_rows[];
extern const int options_torch_n;
int options_torch_store(struct options *o, const struct option_row *r, const char *v, struct buf *warn,
                        struct err *err);
/* Contradictions between them and the rest. */
int options_torch_check(const struct options *o, struct err *err);
void options_torch_clear(struct torch_options *t);

#endif
