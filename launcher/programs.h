/* Where our own programs lie. */
#ifndef DS_PROGRAMS_H
#define DS_PROGRAMS_H

#include "engine/base/err.h"

/* The path of one of our programs ("ds-agent", "ds-rank"): the environment variable (DS_RANK for ds-rank;
 * NULL: none), beside this program, in the package's libexec folder. Owned by the caller; NULL with err
 * when it is nowhere. */
char *program_find(const char *name, const char *variable, struct err *err);

#endif
