/* A channel over the pipes of a process started here: what the spawners local and exec share. */
#ifndef DS_PIPECHAN_H
#define DS_PIPECHAN_H

#include "launcher/spawner.h"

/* Starts argv (found through PATH) in a session of its own, which gets SIGTERM when this process dies.
 * what names it in errors ("ds-agent on w1"). The functions below are the members of spawner_ops. */
int pipechan_open(struct channel **ch, uv_loop_t *loop, char *const *argv, const char *what,
                  const struct channel_events *events, void *ctx, struct err *err);
int pipechan_send(struct channel *ch, const void *data, size_t n);
size_t pipechan_pending(const struct channel *ch);
void pipechan_pause(struct channel *ch, int paused);
void pipechan_shut(struct channel *ch);
void pipechan_close(struct channel *ch);

#endif
