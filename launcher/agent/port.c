/* MASTER_PORT. A port is held by a socket that is bound with SO_REUSEADDR and never listens: bind(0) of others is not
 * given it, a rank that sets SO_REUSEADDR (as TCPStore, gloo and python's servers do) can listen there, however late it
 * comes. A name in the abstract namespace, which is the network's own, stands for the port among agents: two jobs that
 * were given the same number would hold it both. Invariant: what is held stays so to the end of the process. */
#include "launcher/agent/agent.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TRIES 16

static int bind_port(int port, int *fd)
{
    struct sockaddr_in any = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t len = sizeof any;
    int on = 1;

    *fd = lift_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(*fd, (struct sockaddr *)&any, sizeof any) || getsockname(*fd, (struct sockaddr *)&any, &len))
        return -1;
    return ntohs(any.sin_port);
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

int port_hold(int port)
{
    for (int i = 0; i < TRIES; i++) {
        int fd, name = -1, got = bind_port(port, &fd), error;

        if (got > 0 && !bind_name(got, &name))
            return got;
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

int port_claim(struct agent *a, const struct spawn *s, struct err *err)
{
    if (s->node != 0 || s->master_port == a->port || strcmp(s->master_addr, s->address))
        return 0; /* not ours to hold, or held */
    if (!port_hold(s->master_port))
        return err_set(err, ERR_INPUT_LIMIT, "%s: MASTER_PORT %d can't be had here: %s; leave --master-port out, or "
                       "give another", s->host, s->master_port,
                       errno == EADDRINUSE ? "another job or program has it" : strerror(errno));
    a->port = s->master_port;
    return 0;
}
