/* A TCP connection to a name, in the loop: the name is resolved in libuv's pool, every address is tried,
 * the families in turn (RFC 8305: the next one starts after 250 ms without waiting for the first to
 * fail). libssh's own look-up blocks and tries one address. */
#ifndef DS_SSH_DIAL_H
#define DS_SSH_DIAL_H

#include "engine/base/err.h"
#include "launcher/ssh_config.h"

#include <uv.h>

struct ssh_dial;

/* done is called once from the loop: fd is a connected, non-blocking, close-on-exec socket that the
 * callee owns, or -1 and err says why. user_timeout_ms: TCP_USER_TIMEOUT, after which a silent peer ends
 * the connection; timeout_ms: the limit for all of it. */
struct ssh_dial *ssh_dial_start(uv_loop_t *, const char *host, int port, enum ssh_family,
                                int64_t timeout_ms, int64_t user_timeout_ms,
                                void (*done)(void *ctx, int fd, const struct err *why), void *ctx);
/* Gives up: done is not called. Not to be called once done was. NULL is fine. */
void ssh_dial_stop(struct ssh_dial *);

#endif
