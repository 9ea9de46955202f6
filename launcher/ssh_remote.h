/* What is run on a node to start the agent, and to copy it there. Pure text.
 *
 * A script is for /bin/sh and holds no single quote, ! or newline, so that 'SCRIPT' is one word in every login shell
 * (csh and fish too); nothing in it asks for more than POSIX sh, uname, find and sha256sum. */
#ifndef DS_SSH_REMOTE_H
#define DS_SSH_REMOTE_H

#include "engine/base/buf.h"

/* Exit statuses of the scripts, besides those of the agent. */
enum { REMOTE_MISSING = 41, REMOTE_MACHINE = 42, REMOTE_COPY = 43 };
/* What it says before REMOTE_MISSING, for ways to a node that lose the status. */
#define REMOTE_MISSING_LINE "ds-launch: no agent of this build here"

/* Starts the agent when the bytes that lie there are the right ones; sha: of them, in hexadecimal; machine:
 * uname -m it was built for. */
void remote_run_script(const char *sha, const char *machine, struct buf *out);
/* Reads the agent from stdin into the cache: under a name of its own, checked, renamed. token makes that
 * name unique among everybody who copies at the same moment. */
void remote_copy_script(const char *sha, const char *token, struct buf *out);

/* The same as a command line for any login shell. */
void remote_run_command(const char *sha, const char *machine, struct buf *out);
void remote_copy_command(const char *sha, const char *token, struct buf *out);

#endif
