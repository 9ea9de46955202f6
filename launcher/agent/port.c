/* MASTER_PORT. A port is held by a socket that is bound with SO_REUSEADDR and never listens: bind(0) of others is not
 * given it, a rank that sets SO_REUSEADDR (as TCPStore, gloo and python's servers do) can listen there, however late it
 * comes. A name in the abstract namespace, which is the network's own, stands for the port among agents: two jobs that
 * were given the same number would hold it both. Invariant: the last of an agent's ports is MASTER_PORT of the ranks
 * that start next; the ones before it stay held until nothing of the ranks before is left. */
#include "launcher/agent/agent.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TRIES 16

/* Of both families where there are both: one socket of IPv6 takes the port of IPv4, too. */
static int bind_port(int port, int *fd)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t len6 = sizeof six, len4 = sizeof four;
    int on = 1, off = 0;

    *fd = lift_fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (*fd >= 0 && !setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
        !setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off)) {
        if (!bind(*fd, (struct sockaddr *)&six, len6) && !getsockname(*fd, (struct sockaddr *)&six, &len6))
            return ntohs(six.sin6_port);
        if (errno == EADDRINUSE || errno == EACCES)
            return -1;
    }
    if (*fd >= 0)
        close(*fd);
    *fd = lift_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(*fd, (struct sockaddr *)&four, len4) || getsockname(*fd, (struct sockaddr *)&four, &len4))
        return -1;
    return ntohs(four.sin_port);
}

static int bind_name(int port, int *fd)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ds-launch/port/%d", port);

    *fd = lift_fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return *fd < 0 ? -1
                   : bind(*fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                                                                      (size_t)n));
}

int port_hold(struct agent *a, int port)
{
    for (int i = 0; i < TRIES; i++) {
        int fd, name = -1, got = bind_port(port, &fd), error;

        if (got > 0 && !bind_name(got, &name)) {
            ARRAY_GROW(a->port, a->nports, a->ports_cap);
            a->port[a->nports++] = (struct port){got, fd, name};
            return got;
        }
        error = errno;
        if (fd >= 0)
            close(fd);
        if (name >= 0)
            close(name);
        errno = error;
        if (got < 0 || port)
            return 0;
    }
    return 0;
}

void port_release(struct agent *a, int keep)
{
    int gone = a->nports > keep ? a->nports - keep : 0;

    for (int i = 0; i < gone; i++) {
        close(a->port[i].fd);
        close(a->port[i].name);
    }
    a->nports -= gone;
    for (int i = 0; gone && i < a->nports; i++)
        a->port[i] = a->port[i + gone];
    if (a->nports)
        return;
    free(a->port);
    a->port = NULL;
    a->ports_cap = 0;
}

int port_claim(struct agent *a, const struct spawn *s, struct err *err)
{
    if (s->node != 0 || (a->nports && s->master_port == a->port[a->nports - 1].number) ||
        strcmp(s->master_addr, s->address))
        return 0; /* not ours to hold, or held */
    if (!port_hold(a, s->master_port))
        return err_set(err, ERR_INPUT_LIMIT, "%s: MASTER_PORT %d can't be had here: %s; leave --master-port out, or "
                       "give another", s->host, s->master_port,
                       errno == EADDRINUSE ? "another job or program has it" : strerror(errno));
    return 0;
}
