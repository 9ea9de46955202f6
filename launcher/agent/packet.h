/* One packet of a rank's socket (SOCK_SEQPACKET), descriptors with it. */
#ifndef DS_PACKET_H
#define DS_PACKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PACKET_FDS 2

struct packet {
    uint8_t *data; /* owned */
    size_t n;
    int fd[PACKET_FDS]; /* owned copies */
    int nfds;
};

void packet_clear(struct packet *p);
/* As sendmsg: -1 and errno, EAGAIN where it does not fit now. Never waits. */
ssize_t packet_send(int fd, const struct packet *p);
/* 1: one was taken, n its bytes (0: it was too long and is dropped); 0: none is there; -1: the other end is closed.
 * The first descriptor that came along goes to *got, the caller's (-1: none); others are closed: no request has two. */
int packet_receive(int fd, void *data, size_t room, size_t *n, int *got);

#endif
