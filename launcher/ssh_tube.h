/* A forwarded TCP connection (a stream of a bastion's session) as a socket, so that another session can
 * run over it: bytes are carried between the two in the loop, with back-pressure both ways. */
#ifndef DS_SSH_TUBE_H
#define DS_SSH_TUBE_H

#include "launcher/ssh_wire.h"

struct ssh_tube;

/* Asks the bastion to connect to host:port. done is called once from the loop: fd is the near end, owned
 * by the callee, or -1 and err. After it the tube lives until one side ends or ssh_tube_close. */
struct ssh_tube *ssh_tube_open(uv_loop_t *, struct ssh_wire *bastion, const char *host, int port,
                               void (*done)(void *ctx, int fd, const struct err *why), void *ctx);
/* Ends it; the near end sees EOF. The bastion's session must still be there, or have told its end. */
void ssh_tube_close(struct ssh_tube *);

#endif
