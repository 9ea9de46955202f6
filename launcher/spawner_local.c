/* Spawner local: the agent is a child of ds-launch on this machine. */
#include "launcher/pipechan.h"
#include "launcher/programs.h"

#include <stdio.h>
#include <stdlib.h>

struct channel {
    struct pipechan *pipe;
};

static int local_probe(const struct options *o, char why[256])
{
    struct err err = ERR_INIT;
    char *agent = program_find("ds-agent", "DS_AGENT", &err);

    (void)o;
    snprintf(why, 256, "%.255s", agent ? agent : err.text);
    free(agent);
    return err.code ? -1 : 0;
}

static int local_open(struct channel **out, void *pool, uv_loop_t *loop, const struct options *o,
                      const struct host *host, int node, const struct channel_events *events,
                      void *ctx, struct err *err)
{
    struct channel *ch = xcalloc(1, sizeof *ch);
    char *agent = program_find("ds-agent", "DS_AGENT", err);
    char *argv[] = {agent, NULL}, *what = xasprintf("ds-agent %d on %s", node, host->name);
    int rc = agent ? pipechan_open(&ch->pipe, loop, argv, -1, what, events, ctx, err) : -1;

    (void)o;
    free(what);
    free(agent);
    if (rc) {
        free(ch);
        ch = NULL;
    }
    *out = ch;
    return rc;
}

static int local_send(struct channel *ch, const void *data, size_t n)
{
    return pipechan_send(ch->pipe, data, n);
}

static void local_shut(struct channel *ch)
{
    pipechan_shut(ch->pipe);
}

static void local_close(struct channel *ch)
{
    if (ch)
        pipechan_close(ch->pipe);
    free(ch);
}

const struct spawner_ops spawner_local = {
    .name = "local",
    .probe = local_probe,
    .open = local_open,
    .send = local_send,
    .shut = local_shut,
    .close = local_close,
};
