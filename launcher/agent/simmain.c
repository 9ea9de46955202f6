/* ds-agent-sim: many nodes of a simulation in one process. stdin is a Unix socket from which packets come: a node's
 * number with the descriptor that is its channel. Ends when stdin is at its end and every node has ended. */
#include "engine/base/build.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define CORES 64 /* of a node: cpus 0-63, two sockets */

struct sim_node {
    struct agent agent; /* first: the agent's ended gives it back */
    struct sim *sim;
    struct sim_node *next_ended;
    int in, out, over;
};

struct sim {
    struct loop *loop;
    struct watch *control;
    struct ticker *bury;
    struct sim_node *ended;
    int nodes, closed;
};

static void settle(struct sim *sim)
{
    if (sim->closed && !sim->nodes)
        loop_stop(sim->loop);
}

/* Nodes whose life is over, outside of their own calls. */
static void bury(void *ctx)
{
    struct sim *sim = ctx;
    struct sim_node *n;

    while ((n = sim->ended)) {
        sim->ended = n->next_ended;
        agent_close(&n->agent);
        close(n->in);
        close(n->out);
        free(n);
        sim->nodes--;
    }
    settle(sim);
}

static void ended(struct agent *a)
{
    struct sim_node *n = (struct sim_node *)a;

    if (n->over)
        return;
    n->over = 1;
    n->next_ended = n->sim->ended;
    n->sim->ended = n;
    ticker_set(n->sim->bury, 0, 0);
}

/* A machine of its own with an address of its own, and the docker0 that every machine has. */
static void greet(struct agent *a, uint32_t node)
{
    char host[32], boot[40], address[32];
    struct hello_iface iface[] = {{(char *)"lo", (char *)"127.0.0.1", 8, 1, (char *)""},
                                  {(char *)"docker0", (char *)"172.17.0.1", 16, 0, (char *)""},
                                  {(char *)"eth0", address, 8, 0, (char *)""}};
    struct topo_cpu cpu[CORES];
    struct hello h = {.build_id = (char *)(uintptr_t)build_id(),
                      .machine = (char *)"sim",
                      .kernel = (char *)"sim",
                      .hostname = host,
                      .boot_id = boot,
                      .cwd = (char *)"/",
                      .pid = (int)node + 1,
                      .cores = CORES,
                      .cpus = (char *)"0-63",
                      .mem_bytes = 1ull << 38,
                      .mem_available_bytes = 1ull << 38,
                      .port = 29500,
                      .iface = iface,
                      .nifaces = 3,
                      .topo = {.cpu = cpu, .n = CORES},
                      .device_mask = (char *)"",
                      .toward = (char *)""};

    for (int c = 0; c < CORES; c++)
        cpu[c] = (struct topo_cpu){.cpu = c, .core = c, .numa = c / (CORES / 2), .socket = c / (CORES / 2)};
    snprintf(host, sizeof host, "sim%u", node);
    snprintf(boot, sizeof boot, "sim-%08x", node);
    snprintf(address, sizeof address, "10.%u.%u.%u", 1 + (node >> 16 & 63), node >> 8 & 255, node & 255);
    agent_greet(a, &h);
}

static void add_node(struct sim *sim, uint32_t node, int fd)
{
    struct sim_node *n = xcalloc(1, sizeof *n);
    struct err err = ERR_INIT;

    n->sim = sim;
    n->in = fd;
    n->out = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* a descriptor can be watched once */
    n->agent.ended = ended;
    n->agent.cores = CORES;
    sim->nodes++;
    if (n->out < 0)
        err_set(&err, ERR_NODE, "node %u: %m", node);
    else if (!agent_open(&n->agent, sim->loop, n->in, n->out, &err)) {
        greet(&n->agent, node);
        return;
    }
    fprintf(stderr, "ds-agent-sim: %s\n", err.text);
    ended(&n->agent);
}

/* The node's number and its channel: 1; 0: none there now; -1: the end. */
static int receive(uint32_t *node, int *fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {node, sizeof *node};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    ssize_t n = recvmsg(STDIN_FILENO, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n != (ssize_t)sizeof *node || !c || c->cmsg_type != SCM_RIGHTS)
        return -1;
    memcpy(fd, CMSG_DATA(c), sizeof *fd);
    return 1;
}

static void on_control(void *ctx, int events)
{
    struct sim *sim = ctx;
    uint32_t node;
    int fd, rc;

    (void)events;
    while ((rc = receive(&node, &fd)) > 0)
        add_node(sim, node, fd);
    if (rc == 0)
        return;
    watch_set(sim->control, 0);
    sim->closed = 1;
    settle(sim);
}

int main(void)
{
    struct sim sim = {.loop = loop_create()};
    struct err err = ERR_INIT;
    struct rlimit files;

    signal(SIGPIPE, SIG_IGN);
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sim.control = sim.loop ? watch_create(sim.loop, STDIN_FILENO, on_control, &sim, &err) : NULL;
    if (!sim.control) {
        fprintf(stderr, "ds-agent-sim: %s; ds-launch starts this program\n",
                err.code ? err.text : "cannot make its loop");
        return 1;
    }
    sim.bury = ticker_create(sim.loop, bury, &sim);
    watch_set(sim.control, LOOP_READ);
    loop_run(sim.loop);
    watch_destroy(sim.control);
    ticker_destroy(sim.bury);
    loop_destroy(sim.loop);
    return 0;
}
