/* The environment of a rank, set here and nowhere else. */
#ifndef DS_RANKENV_H
#define DS_RANKENV_H

#include "launcher/spawn.h"

/* The environment of s->rank[i]: base (the agent's own) without what an outer ds-launch left in it,
 * then s->env, then what every rank gets. agent_fd: the rank's DS_AGENT_FD, -1: none (foreign
 * program). error_file: TORCHELASTIC_ERROR_FILE, NULL: none. cores: processors the agent may use. NULL at the end;
 * owned (rankenv_free). */
char **rankenv_make(const struct spawn *s, int i, uint32_t epoch, int agent_fd, const char *error_file,
                    int cores, char *const *base);
/* What a ds-launch sets itself, or a torchrun: never inherited from one around us. NULL at the end. */
extern const char *const rankenv_own[];
/* For a program that is no rank (`ds-rank check`): base, scrubbed, and s->env. */
char **rankenv_plain(const struct spawn *s, char *const *base);
void rankenv_free(char **env);
/* The value of NAME, NULL when it is not there. */
const char *rankenv_value(char *const *env, const char *name);

#endif
