/* Spawner exec: a command template reaches the host, and its stdin and stdout are the agent's. %h is the
 * host's name, %n the node's number, %% a percent sign. The command runs under sh, so the host's name is
 * quoted for it. */
#include "launcher/pipechan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_quoted(struct buf *b, const char *s)
{
    buf_addc(b, '\'');
    for (; *s; s++)
        if (*s == '\'')
            buf_adds(b, "'\\''");
        else
            buf_addc(b, *s);
    buf_addc(b, '\'');
}

static int fill_in(struct buf *b, const char *template, const struct host *host, int node,
                   struct err *err)
{
    const char *p;

    for (p = template; *p; p++) {
        if (*p != '%') {
            buf_addc(b, *p);
            continue;
        }
        switch (*++p) {
        case 'h':
            add_quoted(b, host->name);
            break;
        case 'n':
            buf_addf(b, "%d", node);
            break;
        case '%':
            buf_addc(b, '%');
            break;
        default:
            return err_set(err, ERR_INPUT, "--launcher-args '%s': %%%.1s is none of %%h, %%n, %%%%",
                           template, p);
        }
    }
    return 0;
}

static int exec_probe(const struct options *o, char why[256])
{
    if (o && o->launcher_args) {
        snprintf(why, 256, "%s", o->launcher_args);
        return 0;
    }
    snprintf(why, 256, "any command that reaches a host: --launcher-args 'docker exec -i %%h ds-agent'");
    return 0;
}

static int exec_open(struct channel **ch, void *pool, uv_loop_t *loop, const struct options *o,
                     const struct host *host, int node, const struct channel_events *events, void *ctx,
                     struct err *err)
{
    struct buf command = BUF_INIT;
    char *argv[] = {"sh", "-c", NULL, NULL};
    char *what = xasprintf("the command for %s", host->name);
    int rc;

    *ch = NULL;
    if (!o->launcher_args) { /* launch.launcher = exec in a job file */
        free(what);
        return err_set(err, ERR_INPUT, "launcher exec needs --launcher exec --launcher-args with the command "
                       "that starts ds-agent on %%h");
    }
    rc = fill_in(&command, o->launcher_args, host, node, err);
    argv[2] = command.data;
    if (!rc)
        rc = pipechan_open(ch, loop, argv, what, events, ctx, err);
    buf_clear(&command);
    free(what);
    return rc;
}

const struct spawner_ops spawner_exec = {
    .name = "exec",
    .probe = exec_probe,
    .open = exec_open,
    .send = pipechan_send,
    .pending = pipechan_pending,
    .pause = pipechan_pause,
    .shut = pipechan_shut,
    .close = pipechan_close,
};
