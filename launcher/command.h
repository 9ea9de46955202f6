/* From a template, or for the system's ssh, to the command that starts something on a node. Pure text. */
#ifndef DS_COMMAND_H
#define DS_COMMAND_H

#include "engine/base/err.h"
#include "hostfile/hostfile.h"
#include "launcher/options.h"

/* 1 when the template starts ds-agent itself: then nothing is put behind it. */
int command_names_agent(const char *template);

/* A line for sh: the template with %h (host), %n (node), %c and %% filled in. %c is /bin/sh -c SCRIPT as one word, for
 * ways that give a line to a shell over there; without it, and unless the template names ds-agent, the three
 * words are put behind the template. */
int command_fill(const char *template, const struct host *host, int node, const char *script, struct buf *out,
                 struct err *err);

/* The argument vector of the system's ssh in batch mode. timeout_ms: of one connection. */
char **command_openssh(const struct options *o, const struct host *host, int64_t timeout_ms, const char *script);
void command_free(char **argv);

/* 1 when ssh failed with this for a reason that may pass: refused, reset, not resolved, turned away. */
int command_openssh_may_pass(int status, const char *said);

#endif
