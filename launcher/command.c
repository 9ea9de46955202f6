/* Commands that reach a node: see command.h. */
#include "launcher/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ARGS 32

int command_names_agent(const char *template)
{
    return strstr(template, "ds-agent") != NULL;
}

int command_fill(const char *template, const struct host *host, int node, const char *script, struct buf *out,
                 struct err *err)
{
    char *line = xasprintf("/bin/sh -c '%s'", script);
    int placed = command_names_agent(template), rc = 0;

    for (const char *p = template; *p && !rc; p++) {
        if (*p != '%') {
            buf_addc(out, *p);
            continue;
        }
        switch (*++p) {
        case 'h':
            buf_add_quoted(out, host->name);
            break;
        case 'n':
            buf_addf(out, "%d", node);
            break;
        case 'c':
            buf_add_quoted(out, line);
            placed = 1;
            break;
        case '%':
            buf_addc(out, '%');
            break;
        default:
            rc = err_set(err, ERR_INPUT, "--launcher-args '%s': %%%.1s is none of %%h, %%n, %%c, %%%%", template, p);
            p -= !*p;
        }
    }
    if (!placed)
        buf_addf(out, " %s", line);
    free(line);
    return rc;
}

char **command_openssh(const struct options *o, const struct host *host, int64_t timeout_ms, const char *script)
{
    /* never a question, never an unknown key, no master that would outlive us, nothing forwarded */
    static const char *const fixed[] = {
        "ssh", "-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ControlMaster=no",
        "-o", "ClearAllForwardings=yes", "-o", "PermitLocalCommand=no", "-o", "RemoteCommand=none",
    };
    char **argv = xcalloc(MAX_ARGS, sizeof *argv);
    int n = 0;

    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        argv[n++] = xstrdup(fixed[i]);
    argv[n++] = xstrdup("-o");
    argv[n++] = xasprintf("ConnectTimeout=%d", timeout_ms > 1000 ? (int)(timeout_ms / 1000) : 1);
    if (o->ssh_config) {
        argv[n++] = xstrdup("-F");
        argv[n++] = xstrdup(o->ssh_config);
    }
    if (o->identity) {
        argv[n++] = xstrdup("-i");
        argv[n++] = xstrdup(o->identity);
    }
    if (host->port || o->ssh_port) {
        argv[n++] = xstrdup("-p");
        argv[n++] = xasprintf("%d", host->port ? host->port : o->ssh_port);
    }
    if (host->user) {
        argv[n++] = xstrdup("-l");
        argv[n++] = xstrdup(host->user);
    }
    argv[n++] = xstrdup("--");
    argv[n++] = xstrdup(host->name);
    argv[n++] = xasprintf("exec /bin/sh -c '%s'", script);
    return argv;
}

void command_free(char **argv)
{
    for (int i = 0; argv && argv[i]; i++)
        free(argv[i]);
    free(argv);
}

int command_openssh_may_pass(int status, const char *said)
{
    static const char *const passing[] = {
        "Connection refused", "Connection reset", "Connection closed", "kex_exchange_identification",
        "Could not resolve", "Temporary failure", "timed out", "No route to host", "unreachable", NULL,
    };

    if (status != 255)
        return 0;
    for (int i = 0; passing[i]; i++)
        if (strstr(said, passing[i]))
            return !strstr(said, "Permission denied") && !strstr(said, "verification failed");
    return 0;
}
