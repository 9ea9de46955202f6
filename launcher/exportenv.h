/* Which variables of the user's shell are carried to the ranks. */
#ifndef DS_EXPORTENV_H
#define DS_EXPORTENV_H

#include "engine/base/err.h"

struct envlist {
    char **item; /* NAME=VALUE, or NAME alone: to be removed; owned */
    int n, cap;
    int late; /* envlist_build: so many at the end are the user's own words (env file, --export) */
};

/* Appends or replaces by name. */
void envlist_set(struct envlist *e, const char *item);
void envlist_clear(struct envlist *e);

/* Parses env-file text (name: what errors call it): NAME=VALUE a line, `export ` in front, comments, single
 * and double quotes. */
int envlist_parse(struct envlist *e, const char *name, const char *text, struct err *err);

/* What goes to the ranks: by the rules of names in environ, PYTHONPATH with cwd in front when python is set,
 * then .deepspeed_env (or DS_ENV_FILE) of home and cwd, then the words of --export. Variables of an outer
 * launch are removed. */
int envlist_build(struct envlist *e, char *const *environment, const char *home, const char *cwd,
                  char *const *exports, int nexports, int python, struct err *err);

/* A word of --export that names one variable, which is not set: there is nothing to carry. NULL: none is so. */
const char *envlist_unset(char *const *environment, char *const *exports, int n);

#endif
