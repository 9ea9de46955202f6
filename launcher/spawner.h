/* A spawner gives each node a channel: two descriptors that are the agent's stdin and stdout.
 * local forks the agent here, exec runs a command template, openssh the system's ssh, ssh opens a libssh
 * session; the last three copy the agent over when the node lacks this build of it. sim is for invented
 * hosts. */
#ifndef DS_SPAWNER_H
#define DS_SPAWNER_H

#include "engine/base/err.h"
#include "hostfile/hostfile.h"
#include "launcher/options.h"

#include <uv.h>

struct channel; /* one node's byte stream, owned by the spawner that made it */

/* What a channel tells its owner; called from the loop, never from inside a channel_* call. */
struct channel_events {
    void (*up)(void *ctx);                                   /* the magic was seen: the agent talks */
    void (*data)(void *ctx, const void *data, size_t n);     /* bytes after the magic */
    void (*stderr_line)(void *ctx, const char *line);        /* loader and shell complaints */
    void (*down)(void *ctx, const struct err *why);          /* once, last; why->code ERR_OK: clean end */
};

struct spawner_ops {
    const char *name;
    int (*probe)(const struct options *, char why[256]);
    /* What all channels of one launch share (ssh: keys, known hosts, bastions). Both may be NULL: then
     * pool is NULL everywhere. destroy: after every channel is closed; the loop runs once more after it. */
    int (*create)(void **pool, uv_loop_t *, const struct options *, struct err *);
    void (*destroy)(void *pool);
    /* Begins to bring up the agent on one node. */
    int (*open)(struct channel **, void *pool, uv_loop_t *, const struct options *, const struct host *,
                int node, const struct channel_events *, void *ctx, struct err *);
    /* Queues bytes; copies. Never blocks. -1 when down. */
    int (*send)(struct channel *, const void *data, size_t n);
    /* Ends the channel at once (agent sees EOF); down is still called. */
    void (*shut)(struct channel *);
    void (*close)(struct channel *); /* frees; after down or before, no call follows */
};

extern const struct spawner_ops spawner_local, spawner_exec, spawner_openssh, spawner_ssh, spawner_sim;
extern const struct spawner_ops *const spawners[]; /* NULL at the end */

#endif
