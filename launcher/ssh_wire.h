/* One SSH session over a connected socket, run by a libuv loop: the only door to libssh. Nothing here
 * blocks, resolves, reads configuration or asks a person anything.
 *
 * Callbacks come from the loop, never from inside a call of this file; any of these functions may be
 * called from a callback. */
#ifndef DS_SSH_WIRE_H
#define DS_SSH_WIRE_H

#include "engine/base/err.h"
#include "launcher/ssh_config.h"

#include <uv.h>

const char *ssh_wire_version(void); /* of libssh */

/* Private keys, read once and used by all sessions. */
struct ssh_keyring;
struct ssh_keyring *ssh_keyring_create(void);
void ssh_keyring_destroy(struct ssh_keyring *);

struct ssh_login {
    const char *name, *host, *user; /* name: as the user wrote it, for messages */
    int port;
    const char *algorithms;         /* of host keys, in order of preference */
    const char *agent_socket;       /* NULL: do not ask an agent */
    int agent_if_locked;            /* ask it only when one of the first keys needs a passphrase */
    struct ssh_keyring *ring;
    const struct ssh_words *keys;   /* identity files in order; the first nfirst of them before the agent */
    int nfirst;
};

struct ssh_wire_events {
    /* The server's key: 0 to go on, -1 and err to refuse it. */
    int (*trust)(void *ctx, const char *type, const char *blob, const char *fingerprint,
                 struct err *err);
    void (*up)(void *ctx); /* logged in */
    /* Once, last; every stream was ended before. early: the server hung up before it said who it is. */
    void (*down)(void *ctx, const struct err *why, int early);
};

struct ssh_wire;

/* Takes fd (also on failure). login is read during the call and until up: it must live as long. */
int ssh_wire_open(struct ssh_wire **, uv_loop_t *, int fd, const struct ssh_login *,
                  const struct ssh_wire_events *, void *ctx, struct err *err);
/* Hangs up; no callback follows, its streams are gone. NULL is fine. */
void ssh_wire_close(struct ssh_wire *);

struct ssh_stream_end {
    int status;      /* exit status, -1: none came */
    char signal[16]; /* "KILL" ..., "": none */
    char why[256];   /* "" unless the stream broke or never opened */
};

struct ssh_stream_events {
    void (*open)(void *ctx);
    void (*data)(void *ctx, int is_stderr, const char *data, size_t n);
    void (*drained)(void *ctx);                            /* all that was queued is handed over */
    void (*end)(void *ctx, const struct ssh_stream_end *); /* once, last */
};

struct ssh_stream;

/* A command, or a TCP connection made by the server (direct-tcpip). */
struct ssh_stream *ssh_wire_exec(struct ssh_wire *, const char *command,
                                 const struct ssh_stream_events *, void *ctx);
struct ssh_stream *ssh_wire_forward(struct ssh_wire *, const char *host, int port,
                                    const struct ssh_stream_events *, void *ctx);
void ssh_stream_send(struct ssh_stream *, const void *data, size_t n); /* copies */
size_t ssh_stream_pending(const struct ssh_stream *);
void ssh_stream_eof(struct ssh_stream *);                /* after what is queued */
void ssh_stream_pause(struct ssh_stream *, int paused);  /* no data events meanwhile */
void ssh_stream_close(struct ssh_stream *);              /* no callback follows; NULL is fine */

#endif
