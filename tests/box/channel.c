/* Drives the spawner ssh alone: opens a channel to every host named, sends each a line when it is up, and
 * prints what comes, one event a line, until all are down:
 *
 *   channel [-F SSH-CONFIG] [-i KEY] [-p PORT] [-t CONNECT-SECONDS] [-n BYTES] [-k] [USER@]HOST[:PORT]...
 *
 * -n: sends BYTES of a pattern too and checks that they come back (the agent is one that echoes). -k: keeps
 * the channels open. The agent is DS_AGENT's. */
#include "launcher/spawner.h"
#include "launcher/ssh_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct node {
    struct channel *ch;
    struct host host;
    size_t sent, got;
    int bad;
};

struct run {
    uv_loop_t loop;
    struct options options;
    void *pool;
    size_t bytes;
    int keep, left, failed;
};

static struct run run;

static char pattern(size_t i)
{
    return (char)(i * 7 + i / 251);
}

static void feed(struct node *n)
{
    char part[32768];

    while (n->sent < run.bytes && n->sent - n->got < 8 * sizeof part) { /* under way */
        size_t m = run.bytes - n->sent < sizeof part ? run.bytes - n->sent : sizeof part;
        for (size_t i = 0; i < m; i++)
            part[i] = pattern(n->sent + i);
        spawner_ssh.send(n->ch, part, m);
        n->sent += m;
    }
}

static void on_up(void *ctx)
{
    struct node *n = ctx;

    printf("%s up\n", n->host.name);
    if (run.bytes)
        feed(n);
    else
        spawner_ssh.send(n->ch, "hello\n", 6);
}

static void on_data(void *ctx, const void *data, size_t len)
{
    struct node *n = ctx;

    if (run.bytes) {
        for (size_t i = 0; i < len; i++)
            n->bad |= ((const char *)data)[i] != pattern(n->got + i);
        n->got += len;
        feed(n);
        if (n->got == run.bytes)
            printf("%s echoed %zu bytes%s\n", n->host.name, n->got, n->bad ? ", wrong" : "");
    } else {
        printf("%s said %.*s", n->host.name, (int)len, (const char *)data);
        n->got += len;
    }
    if (!run.keep && n->got >= run.bytes)
        spawner_ssh.shut(n->ch);
}

static void on_line(void *ctx, const char *line)
{
    struct node *n = ctx;

    printf("%s stderr %s\n", n->host.name, line);
}

static void on_down(void *ctx, const struct err *why)
{
    struct node *n = ctx;

    printf("%s down %d %s\n", n->host.name, why->code, why->text);
    run.failed |= why->code != ERR_OK;
    spawner_ssh.close(n->ch);
    n->ch = NULL;
    if (!--run.left)
        spawner_ssh.destroy(run.pool);
}

int main(int argc, char **argv)
{
    static const struct channel_events events = {on_up, on_data, on_line, on_down};
    struct err err = ERR_INIT;
    struct node *nodes;
    int c, n;

    setvbuf(stdout, NULL, _IOLBF, 0);
    run.options.connect_timeout_ms = run.options.ping_limit_ms = -1;
    while ((c = getopt(argc, argv, "F:i:p:t:n:k")) != -1) {
        switch (c) {
        case 'F': run.options.ssh_config = optarg; break;
        case 'i': run.options.identity = optarg; break;
        case 'p': run.options.ssh_port = atoi(optarg); break;
        case 't': run.options.connect_timeout_ms = atoi(optarg) * 1000; break;
        case 'n': run.bytes = strtoul(optarg, NULL, 10); break;
        case 'k': run.keep = 1; break;
        default: return 2;
        }
    }
    n = run.left = argc - optind;
    uv_loop_init(&run.loop);
    if (spawner_ssh.create(&run.pool, &run.loop, &run.options, &err)) {
        printf("create %d %s\n", err.code, err.text);
        return 2;
    }
    nodes = xcalloc((size_t)n, sizeof *nodes);
    for (int i = 0; i < n; i++) {
        struct node *node = &nodes[i];
        const char *text = argv[optind + i];
        ssh_split_destination(text, strlen(text), &node->host.user, &node->host.name, &node->host.port);
        if (spawner_ssh.open(&node->ch, run.pool, &run.loop, &run.options, &node->host, i, &events, node,
                             &err)) {
            printf("%s open %d %s\n", text, err.code, err.text);
            run.failed = 1;
            if (!--run.left)
                spawner_ssh.destroy(run.pool);
        }
    }
    uv_run(&run.loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&run.loop))
        printf("handles are left in the loop\n");
    for (int i = 0; i < n; i++) {
        free(nodes[i].host.name);
        free(nodes[i].host.user);
    }
    free(nodes);
    return run.failed;
}
