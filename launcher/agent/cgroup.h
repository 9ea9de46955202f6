/* A cgroup (v2) of one agent for all its ranks, where the node lets us make one. It adds two things to what reap.h
 * does: whatever is below is killed in one stroke, and what an agent leaves that was killed itself, keeper and
 * worker at once, is found and ended by the next one. */
#ifndef DS_AGENT_CGROUP_H
#define DS_AGENT_CGROUP_H

#include <sys/types.h>

struct cgroup;

/* Ends what dead agents of this user left beside us, then makes a group; NULL: none can be made here. */
struct cgroup *cgroup_make(void);
/* fork, the child in the group (in ours when c is NULL, or when the group does not take it). */
pid_t cgroup_fork(struct cgroup *c);
/* KILL to everything in it. NULL is fine, as below. */
void cgroup_kill(struct cgroup *c);
/* The sentence about what dead agents had left here, once; NULL: nothing, or it was said. */
const char *cgroup_news(struct cgroup *c);
/* Kills what is in it and takes it away. */
void cgroup_remove(struct cgroup *c);

#endif
