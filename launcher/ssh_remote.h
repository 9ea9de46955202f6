/* The two commands that ds-launch runs on a node, as text. Whatever the login shell is (sh, csh, fish),
 * it only has to pass on one quoted word: the script holds no quote, backslash, exclamation mark or
 * newline, and runs under /bin/sh. Pure. */
#ifndef DS_SSH_REMOTE_H
#define DS_SSH_REMOTE_H

#include "engine/base/buf.h"

/* Exit statuses of the scripts, outside what programs and shells use. */
#define REMOTE_MISSING 93 /* no agent of this hash is there */
#define REMOTE_MACHINE 94 /* another kind of machine; stderr says which */
#define REMOTE_COPY 95    /* the copy is not what was sent */

/* Becomes the cached agent. sha: 64 hexadecimal digits of the agent; machine: what uname -m must say. */
void remote_run_command(const char *sha, const char *machine, struct buf *out);

/* Takes the agent from stdin to its place: under another name (token makes it unique among jobs and
 * hosts that share the folder), checked, then renamed, so that nobody ever runs half an agent. */
void remote_copy_command(const char *sha, const char *token, struct buf *out);

#endif
