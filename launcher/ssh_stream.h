/* A stream's queue and life, as ssh_wire.c (which does the talking) and ssh_stream.c (which does not) share
 * it. For these two files only. */
#ifndef DS_SSH_STREAM_H
#define DS_SSH_STREAM_H

#include "launcher/ssh_wire.h"

enum stream_state { STREAM_OPENING, STREAM_EXEC, STREAM_RUN, STREAM_ENDED };

struct ssh_channel_struct; /* libssh's */
struct ssh_channel_callbacks_struct;

struct ssh_stream {
    struct ssh_wire *wire;
    struct ssh_stream *next; /* of the same wire */
    struct ssh_channel_struct *ch;
    struct ssh_channel_callbacks_struct *cb;
    enum stream_state state;
    char *command, *host; /* one of them */
    int port;
    struct ssh_stream_events ev;
    void *ctx;
    struct buf out; /* from sent on: not yet handed over */
    size_t sent;
    int want_eof, sent_eof, paused, closed, was_busy;
    int eof[2], exited;
    uint64_t exit_time;
    struct ssh_stream_end end;
};

/* Of ssh_wire.c: pump soon; is anything of the session not yet written; is its owner done with it. */
void ssh_wire_kick(struct ssh_wire *);
int ssh_wire_unsent(const struct ssh_wire *);
int ssh_wire_closing(const struct ssh_wire *);

/* Its owner wants to hear no more. */
int ssh_stream_gone(const struct ssh_stream *);
/* Tells the end, once. */
void ssh_stream_finish(struct ssh_stream *, const char *why);
/* The next bytes to hand over; taken says how many were. drained: the queue has just become empty. */
size_t ssh_stream_next(const struct ssh_stream *, size_t most, const char **data);
void ssh_stream_taken(struct ssh_stream *, size_t n);
void ssh_stream_drained(struct ssh_stream *);

#endif
