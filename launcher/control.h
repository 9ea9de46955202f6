/* A running job is reached through one Unix socket of its front end, JOB.sock in a folder of the user's own.
 * Both ends are here: the server, a part of the front end's loop, and the calls of `ps` and `kill`.
 *
 * A request is one line ("info", "signal N"), the answer one JSON object; then the server closes. Only the user
 * whose job it is, and root, get an answer. */
#ifndef DS_CONTROL_H
#define DS_CONTROL_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

#include <uv.h>

struct control;

struct control_events {
    void (*info)(void *ctx, struct buf *json); /* appends one object */
    void (*signal)(void *ctx, int signo);      /* a signal that is allowed: control_signal */
};

/* Opens the socket of job id; removes sockets that dead jobs left. NULL and err. */
struct control *control_open(uv_loop_t *loop, const char *id, const struct control_events *events, void *ctx,
                             struct err *err);
const char *control_path(const struct control *c);
/* Takes the socket away; the memory goes when the loop has run once more. NULL is fine. */
void control_close(struct control *c);

/* For a process that has no time for control_close: safe in a signal handler. */
void control_unlink(void);

/* "TERM", "SIGTERM", "15": the number of a signal that a job takes (INT, TERM, HUP, KILL, USR1, USR2); -1 and
 * err. */
int control_signal(const char *name, struct err *err);

/* Asks every job of this user; each(ctx, json, n) for each that answers. Sockets of dead jobs are removed. The
 * number of jobs. each NULL: only removes. */
int control_list(void (*each)(void *ctx, const char *id, const char *json, size_t n), void *ctx);
/* Sends one request to a job, named by its whole id or the path of its socket; the answer is appended. */
int control_ask(const char *id, const char *request, struct buf *answer, struct err *err);

#endif
