/* Frames between front end and agent: u32 length (of what follows), u8 type, u32 epoch, payload. Both
 * ends are the same build, so no versions inside; hello carries the build id and a different one is
 * refused. Integers little-endian (engine/base/wire.h).
 *
 * The agent's stream begins with MSG_MAGIC; everything before it (shell start-up noise) is dropped.
 * Output moves against credit, everything else does not. */
#ifndef DS_MSG_H
#define DS_MSG_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "engine/base/wire.h"

#define MSG_MAGIC "\r\n\001DS-AGENT-1\002\n"
#define MSG_MAX_BYTES (4u << 20)
#define MSG_WANT_ALL 0xffffffffu
#define MSG_STDIN_BYTES 65536u    /* of stdin that a rank may have asked for and not been sent */
#define MSG_OVERDRAW_BYTES 65536u /* of a stream: what it may send beyond credit, by the end of a line or of itself */

enum msg_type {
    /* agent to front end */
    MSG_HELLO = 1, /* struct hello of launcher/spawn.h */
    MSG_STARTED,   /* u32 rank, u32 pid */
    MSG_OUTPUT,    /* u32 rank, u8 stream (1 stdout, 2 stderr), bytes */
    MSG_EXIT,      /* u32 rank, struct rank_end */
    MSG_METRIC,    /* u32 rank, bytes: JSON object */
    MSG_EVENT,     /* u32 rank, bytes: JSON object */
    MSG_FAIL,      /* u32 rank, u32 err code, str text */
    MSG_LOST,      /* u32 rank, u32 peer, str op, u64 seq */
    MSG_PUT,       /* str key, bytes value */
    MSG_GET,       /* str key (agent asks, front end answers with VALUE) */
    MSG_FENCE,     /* str name, u32 how many of this node's ranks have arrived (sent once: all) */
    MSG_CHECKED,   /* u32 err code, str text: answer to CHECK */
    MSG_PONG,      /* u64 echo, f64 wall */
    MSG_WANT,      /* u32 rank, u32 bytes of STDIN that may be sent, beside what was allowed before;
                    * MSG_WANT_ALL: it reads no more, what comes for it is dropped */
    MSG_BYE,       /* str why: the agent ends */
    MSG_ERROR,     /* u32 rank, bytes: what it left in its TORCHELASTIC_ERROR_FILE; comes before its EXIT */
    MSG_HELD,      /* u32 port: answer to HOLD, 0: there is none */
    /* front end to agent */
    MSG_CHECK,     /* struct spawn of launcher/spawn.h: `ds-rank check` on this node */
    MSG_SPAWN,     /* struct spawn: starts this node's ranks */
    MSG_SIGNAL,    /* i32 signal, to all ranks of the node */
    MSG_STOP,      /* u32 enum stop_why: set the stop word in every rank's page */
    MSG_KILL,      /* u64 grace ms: TERM, grace, KILL; 0: KILL at once */
    MSG_VALUE,     /* str key, bytes value */
    MSG_FENCED,    /* str name */
    MSG_STDIN,     /* u32 rank (MSG_NODE: all of the node), bytes (empty: EOF) */
    MSG_CREDIT,    /* u32 bytes of OUTPUT that may be sent */
    MSG_PING,      /* u64 echo */
    MSG_HOLD,      /* hold another TCP port for MASTER_PORT */
    MSG_END,       /* end ranks, then the agent itself */
};

struct msg {
    enum msg_type type;
    uint32_t epoch;
    const uint8_t *data; /* into the decoder's buffer, valid until the next decode */
    uint32_t len;
};

/* Appends a frame. */
void msg_put(struct buf *out, enum msg_type type, uint32_t epoch, const void *data, size_t n);

/* How a rank ended. */
struct rank_end {
    int code, signal, oom; /* oom: the kernel killed it for want of memory, as far as the agent can tell */
    double wall;           /* when, by the node's clock */
    uint32_t phase;        /* enum rank_phase of an engine's rank at its end */
    uint64_t step;         /* that were done */
};
void rank_end_put(struct buf *out, const struct rank_end *e);
/* All that is left in r; -1: it is none, or more. */
int rank_end_get(struct reader *r, struct rank_end *e);

/* Takes the next whole frame from in (dropping what was returned before): 1, 0 when more bytes are
 * needed, -1 when the stream is not ours (length beyond MSG_MAX_BYTES, unknown type). */
struct msg_decoder {
    struct buf in;
    size_t taken;
};
void msg_feed(struct msg_decoder *, const void *data, size_t n);
int msg_next(struct msg_decoder *, struct msg *, struct err *);
void msg_decoder_clear(struct msg_decoder *);

#endif
