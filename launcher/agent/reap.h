/* Descendants: found in /proc, signalled, reaped. Needs PR_SET_CHILD_SUBREAPER, so that everything
 * that was ever started below us stays below us. */
#ifndef DS_AGENT_REAP_H
#define DS_AGENT_REAP_H

#include <sys/types.h>

/* Sends signo to every descendant of this process, and to every process group that one of them is
 * in but our own (a group is hit as a whole, so a program that forks without end can't outrun it).
 * Only safe when this process leads a session of its own or has no children outside sessions made
 * below it. Returns how many live descendants were seen; a few of their pids go to sample[max] when
 * given. */
int reap_signal(int signo, pid_t *sample, int max);

/* Reaps what is dead and calls back for each. 1 when no child is left at all (so no descendant),
 * else 0. */
int reap_children(void (*dead)(void *ctx, pid_t pid, int status), void *ctx);

/* KILL and reap until nothing is left: 0; -1 when something is still there after limit_ms. */
int reap_all(int limit_ms);

#endif
