/* A channel over the pipes of a process started here: what the spawners local, exec and openssh share. */
#ifndef DS_PIPECHAN_H
#define DS_PIPECHAN_H

#include "launcher/spawner.h"

struct pipechan;

/* Starts argv (found through PATH) in a session of its own, which gets SIGTERM when this process dies.
 * what names it in errors ("ds-agent on w1"). in: a descriptor that is its stdin instead of a pipe (copied), -1:
 * a pipe. The functions up to close mean what the members of spawner_ops mean. */
int pipechan_open(struct pipechan **ch, uv_loop_t *loop, char *const *argv, int in, const char *what,
                  const struct channel_events *events, void *ctx, struct err *err);
int pipechan_send(struct pipechan *ch, const void *data, size_t n);
void pipechan_shut(struct pipechan *ch);
void pipechan_close(struct pipechan *ch);
/* Of a channel that is down: the exit status as a shell would give it, -1: none; the last it said on stderr, or
 * on stdout before the magic. */
int pipechan_status(const struct pipechan *ch);
const char *pipechan_said(const struct pipechan *ch);

#endif
