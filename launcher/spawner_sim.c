/* Spawner sim: the hosts of sim:NODESxSLOTS. A few processes (ds-agent-sim) hold many nodes each; every node has a
 * channel of its own, a socket pair whose other end is handed to its process, so the front end does for each what
 * it does for a host.
 *
 * Invariants: down is told from the loop only; a process ends when its control socket is closed and its nodes have
 * ended, and is always reaped. */
#include "launcher/magic.h"
#include "launcher/programs.h"
#include "launcher/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NODES_EACH 2048 /* of one process */
#define READ_BYTES 65536
#define KEEP_BYTES 4096 /* of memory that an empty queue keeps */
#define END_WAIT_MS 5000

struct sim_process {
    pid_t pid;
    int control;
};

struct sim_pool {
    char *program;
    struct sim_process *process;
    int n;
};

struct channel {
    uv_poll_t poll;
    int fd, polled; /* polled: the events asked for */
    int told, closing;
    struct channel_events ev;
    void *ctx;
    struct magic magic;
    struct buf out;
};

static int sim_probe(const struct options *o, char why[256])
{
    struct err err = ERR_INIT;
    char *program = program_find("ds-agent-sim", "DS_AGENT_SIM", &err);

    snprintf(why, 256, "%.255s", program ? program : err.text);
    free(program);
    return err.code ? -1 : 0;
}

static int sim_create(void **pool, uv_loop_t *loop, const struct options *o, struct err *err)
{
    char *program = program_find("ds-agent-sim", "DS_AGENT_SIM", err);
    struct sim_pool *p;

    *pool = NULL;
    if (!program)
        return -1;
    *pool = p = xcalloc(1, sizeof *p);
    p->program = program;
    return 0;
}

static void sim_destroy(void *pool)
{
    struct sim_pool *p = pool;
    int i, left;

    if (!p)
        return;
    for (i = 0; i < p->n; i++)
        close(p->process[i].control);
    for (i = 0; i < p->n; i++) {
        for (left = END_WAIT_MS / 5; left && !waitpid(p->process[i].pid, NULL, WNOHANG); left--)
            usleep(5000);
        if (!left) {
            kill(p->process[i].pid, SIGKILL);
            waitpid(p->process[i].pid, NULL, 0);
        }
    }
    free(p->process);
    free(p->program);
    free(p);
}

/* Between fork and exec: only what is safe after a fork of a program with threads. */
static void child(char *program, int fd, pid_t parent)
{
    char *argv[] = {program, NULL};

    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || dup2(fd, STDIN_FILENO) < 0)
        _exit(1);
    execv(program, argv);
    _exit(127);
}

static struct sim_process *process_of(struct sim_pool *p, int node, struct err *err)
{
    pid_t parent = getpid(), pid;
    int fd[2];

    if (node / NODES_EACH < p->n)
        return &p->process[node / NODES_EACH];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd)) {
        err_set(err, ERR_JOB, "cannot make a socket: %m");
        return NULL;
    }
    pid = fork();
    if (pid == 0)
        child(p->program, fd[1], parent);
    close(fd[1]);
    if (pid < 0) {
        err_set(err, ERR_JOB, "cannot start %s: %m", p->program);
        close(fd[0]);
        return NULL;
    }
    p->process = xrealloc(p->process, (size_t)(p->n + 1) * sizeof *p->process);
    p->process[p->n] = (struct sim_process){pid, fd[0]};
    return &p->process[p->n++];
}

static int hand_over(int control, int node, int fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } u = {.room = {0}};
    uint32_t number = (uint32_t)node;
    struct iovec iov = {&number, sizeof number};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = u.room,
                       .msg_controllen = sizeof u.room};
    ssize_t n;

    u.head.cmsg_level = SOL_SOCKET;
    u.head.cmsg_type = SCM_RIGHTS;
    u.head.cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(&u.head), &fd, sizeof fd);
    do
        n = sendmsg(control, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof number ? 0 : -1;
}

/* ---- one channel */

static void on_poll(uv_poll_t *p, int status, int events);

static void watch(struct channel *ch)
{
    int events = (ch->told ? 0 : UV_READABLE) | (ch->out.len && !ch->told ? UV_WRITABLE : 0);

    if (events == ch->polled)
        return;
    ch->polled = events;
    if (events)
        uv_poll_start(&ch->poll, events, on_poll);
    else
        uv_poll_stop(&ch->poll);
}

static void down(struct channel *ch)
{
    struct err why = ERR_INIT;

    if (ch->told)
        return;
    ch->told = 1;
    if (!ch->magic.found)
        err_set(&why, ERR_NODE, "the simulation ended before it answered");
    watch(ch);
    ch->ev.down(ch->ctx, &why);
}

static void drain(struct channel *ch)
{
    ssize_t n = send(ch->fd, ch->out.data, ch->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && errno != EAGAIN && errno != EINTR)
        buf_reset(&ch->out); /* reading will say so */
    else if (n > 0)
        buf_drop(&ch->out, (size_t)n);
    if (!ch->out.len && ch->out.cap > KEEP_BYTES)
        buf_clear(&ch->out);
}

static void on_poll(uv_poll_t *p, int status, int events)
{
    struct channel *ch = p->data;
    char data[READ_BYTES], *from = data;
    ssize_t n;

    if (events & UV_WRITABLE)
        drain(ch);
    watch(ch);
    if (!(events & UV_READABLE) && status >= 0)
        return;
    n = read(ch->fd, data, sizeof data);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        down(ch);
        return;
    }
    if (!ch->magic.found) {
        size_t at = magic_feed(&ch->magic, data, (size_t)n);

        if (!ch->magic.found)
            return;
        ch->ev.up(ch->ctx);
        from += at;
        n -= (ssize_t)at;
    }
    if (n && !ch->closing)
        ch->ev.data(ch->ctx, from, (size_t)n);
}

static int sim_open(struct channel **out, void *pool, uv_loop_t *loop, const struct options *o, const struct host *host,
                    int node, const struct channel_events *events, void *ctx, struct err *err)
{
    struct sim_process *p = process_of(pool, node, err);
    struct channel *ch;
    int fd[2], rc;

    *out = NULL;
    if (!p)
        return -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd))
        return err_set(err, ERR_JOB, "no socket for the simulated host %s: %m; raise the limit of open files "
                       "(ulimit -n) or simulate fewer nodes", host->name);
    rc = hand_over(p->control, node, fd[1]);
    close(fd[1]);
    if (rc) {
        close(fd[0]);
        return err_set(err, ERR_JOB, "the simulating process does not take %s: %m", host->name);
    }
    ch = xcalloc(1, sizeof *ch);
    ch->fd = fd[0];
    ch->ev = *events;
    ch->ctx = ctx;
    uv_poll_init(loop, &ch->poll, ch->fd);
    ch->poll.data = ch;
    *out = ch;
    watch(ch);
    return 0;
}

static int sim_send(struct channel *ch, const void *data, size_t n)
{
    if (ch->told)
        return -1;
    buf_add(&ch->out, data, n);
    if (ch->out.len >= KEEP_BYTES)
        drain(ch); /* a large frame for each of thousands: gone before the next is made */
    watch(ch);
    return 0;
}

static void sim_shut(struct channel *ch)
{
    shutdown(ch->fd, SHUT_WR);
}

static void closed(uv_handle_t *h)
{
    struct channel *ch = h->data;

    magic_clear(&ch->magic);
    buf_clear(&ch->out);
    free(ch);
}

static void sim_close(struct channel *ch)
{
    if (!ch)
        return;
    ch->closing = ch->told = 1;
    uv_close((uv_handle_t *)&ch->poll, closed);
    close(ch->fd);
}

const struct spawner_ops spawner_sim = {
    .name = "sim",
    .probe = sim_probe,
    .create = sim_create,
    .destroy = sim_destroy,
    .open = sim_open,
    .send = sim_send,
    .shut = sim_shut,
    .close = sim_close,
};
