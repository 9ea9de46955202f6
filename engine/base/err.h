/* Errors that travel up: a code and one bounded sentence.
 *
 * The first detector writes what was attempted, on what, why it failed and what to do. Everyone else
 * passes it on, at most putting a context in front (err_prefix). Only the top prints. Codes are
 * grouped by what is lost, so that a policy reads the class and not the text.
 */
#ifndef DS_BASE_ERR_H
#define DS_BASE_ERR_H

#include <stdarg.h>

#define ERR_TEXT_BYTES 1024

/* What is lost. The class of a code is code / 16. */
enum err_class {
    ERR_CLASS_NONE = 0,
    ERR_CLASS_INPUT, /* nothing: the user's input is wrong, nothing was started */
    ERR_CLASS_RANK,  /* one rank */
    ERR_CLASS_NODE,  /* one node with its ranks */
    ERR_CLASS_JOB,   /* the job */
};

enum err_code {
    ERR_OK = 0,
    ERR_INPUT = ERR_CLASS_INPUT * 16, /* bad value, bad grammar, contradiction */
    ERR_INPUT_FILE,                   /* file missing, unreadable, empty, cut short, of the wrong kind */
    ERR_INPUT_DAMAGED,                /* data that its hash does not fit */
    ERR_INPUT_LIMIT,                  /* valid but beyond what this machine or build can do */
    ERR_RANK = ERR_CLASS_RANK * 16,   /* this rank failed */
    ERR_RANK_PEER,                    /* a peer is gone: this rank is a follower, not the cause */
    ERR_RANK_ABORT,                   /* ended by the abort flag */
    ERR_RANK_TIMEOUT,                 /* a wait passed its deadline */
    ERR_NODE = ERR_CLASS_NODE * 16,   /* a node cannot be reached or used */
    ERR_NODE_AUTH,                    /* login refused or host key not trusted */
    ERR_JOB = ERR_CLASS_JOB * 16,     /* the job cannot go on */
    ERR_JOB_IO,                       /* disk full, write failed */
    ERR_JOB_INTERNAL,                 /* a bug: an invariant does not hold */
};

struct err {
    enum err_code code;
    char text[ERR_TEXT_BYTES]; /* one sentence or several lines, UTF-8, no trailing newline */
};

#define ERR_INIT {ERR_OK, ""}

/* Sets code and text; text beyond the bound is cut and ends in "...". Accepts e == NULL, keeps errno
 * (so %m works and the caller's errno survives). Returns -1, so "return err_set(...)" is one statement. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int err_vset(struct err *e, enum err_code code, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

/* Puts "PREFIX: " in front of the text. Code unchanged. Returns -1. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The other way: text behind its "PREFIX: ", or the whole of it when it does not begin so. Points into text. */
const char *err_unprefix(const char *text, const char *prefix);

static inline enum err_class err_class(const struct err *e)
{
    return (enum err_class)(e->code / 16);
}

/* Exit status for a program that ends with this error: 2 for input, 1 otherwise, 0 for ERR_OK. */
int err_exit_code(const struct err *e);

#endif
