/* Spawner local: the agent is a child of ds-launch on this machine. */
#include "launcher/pipechan.h"
#include "launcher/programs.h"

#include <stdio.h>
#include <stdlib.h>

static int local_probe(const struct options *o, char why[256])
{
    struct err err = ERR_INIT;
    char *agent = program_find("ds-agent", "DS_AGENT", &err);

    (void)o;
    snprintf(why, 256, "%.255s", agent ? agent : err.text);
    free(agent);
    return err.code ? -1 : 0;
}

static int local_open(struct channel **ch, void *pool, uv_loop_t *loop, const struct options *o,
                      const struct host *host, int node, const struct channel_events *events,
                      void *ctx, struct err *err)
{
    char *agent = program_find("ds-agent", "DS_AGENT", err);
    char *argv[] = {agent, NULL}, *what;
    int rc;

    (void)o;
    *ch = NULL;
    if (!agent)
        return -1;
    what = xasprintf("ds-agent %d on %s", node, host->name);
    rc = pipechan_open(ch, loop, argv, what, events, ctx, err);
    free(what);
    free(agent);
    return rc;
}

const struct spawner_ops spawner_local = {
    .name = "local",
    .probe = local_probe,
    .open = local_open,
    .send = pipechan_send,
    .pending = pipechan_pending,
    .pause = pipechan_pause,
    .shut = pipechan_shut,
    .close = pipechan_close,
};
