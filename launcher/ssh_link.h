/* A logged-in session to one host, with whatever it takes: a place among the handshakes in flight,
 * resolving, dialling, bastions on the way, and further attempts until the connect timeout. */
#ifndef DS_SSH_LINK_H
#define DS_SSH_LINK_H

#include "launcher/ssh_target.h"
#include "launcher/ssh_wire.h"

#define SSH_HANDSHAKES 64 /* at once: bounds memory and what sshd and the name service must bear */
#define SSH_CONNECT_MS 30000

struct ssh_pool; /* what all links of a launch share: files, keys, bastions, the queue */
int ssh_pool_create(struct ssh_pool **, uv_loop_t *, const struct options *, struct err *err);
void ssh_pool_destroy(struct ssh_pool *); /* after all links are closed */
int64_t ssh_pool_timeout_ms(const struct ssh_pool *);

struct ssh_link_events {
    void (*up)(void *ctx);
    void (*note)(void *ctx, const char *line);           /* worth a line: a retry, an ignored keyword */
    void (*down)(void *ctx, const struct err *why);      /* once, last, before up or after */
};

struct ssh_link;
/* user NULL, port 0: as the configuration says. */
int ssh_link_open(struct ssh_link **, struct ssh_pool *, const char *name, const char *user, int port,
                  const struct ssh_link_events *, void *ctx, struct err *err);
struct ssh_wire *ssh_link_wire(struct ssh_link *); /* while up */
/* No callback follows. NULL is fine. */
void ssh_link_close(struct ssh_link *);

#endif
