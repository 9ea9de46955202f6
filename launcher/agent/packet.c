/* Packets with descriptors: see packet.h. */
#include "launcher/agent/packet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(PACKET_FDS * sizeof(int))];
};

void packet_clear(struct packet *p)
{
    for (int i = 0; i < p->nfds; i++)
        close(p->fd[i]);
    free(p->data);
}

ssize_t packet_send(int fd, const struct packet *p)
{
    union control control = {.room = {0}};
    struct iovec iov = {p->data, p->n};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

    if (p->nfds) {
        size_t bytes = (size_t)p->nfds * sizeof(int);

        m.msg_control = control.room;
        m.msg_controllen = CMSG_SPACE(bytes);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(&control.head), p->fd, bytes);
    }
    return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void take_fds(struct msghdr *m, int *got)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        for (size_t i = 0; c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && i < n;
             i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            if (*got < 0)
                *got = fd;
            else
                close(fd);
        }
    }
}

int packet_receive(int fd, void *data, size_t room, size_t *n, int *got)
{
    union control control;
    struct iovec iov = {data, room};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    ssize_t rc = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    *n = 0;
    *got = -1;
    if (rc < 0)
        return errno == EINTR ? 1 : errno == EAGAIN ? 0 : -1;
    take_fds(&m, got);
    if (!(m.msg_flags & MSG_TRUNC))
        *n = (size_t)rc;
    return rc ? 1 : -1;
}
