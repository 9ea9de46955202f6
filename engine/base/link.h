/* The socket between an agent and a rank (DS_AGENT_FD): a SOCK_SEQPACKET pair, one message a packet, at
 * most LINK_MAX_BYTES, descriptors by SCM_RIGHTS. Same build on both ends, so no versions inside.
 *
 *   packet = u8 type, u32 id, body          id: chosen by the rank, echoed in the answer; 0: no answer
 *
 *   rank to agent                            agent to rank
 *   HELLO    str build id, u32 pid           WELCOME  u32 rank, world, local_rank, local_world, node, nodes,
 *                                                     epoch; node_of (wire.h); bytes key[32];
 *                                                     str address; descriptors: page memfd, abort eventfd
 *   PUT      str key, bytes value            -
 *   GET      str key                         VALUE    bytes value            (when the key is there)
 *   FENCE    str name                        FENCED   -                      (when all have called)
 *   PUTFD    str key + descriptor            -
 *   GETFD    str key                         FD       + descriptor
 *   METRIC   bytes: one JSON object          -        (forwarded to metrics.jsonl)
 *   EVENT    bytes: one JSON object          -        (forwarded to events.jsonl)
 *   FAIL     u32 code, str text              -        (the error this rank will exit with)
 *   LOST     u32 peer, str op, u64 seq       -
 *                                            REFUSED  str why                (answer to id: will not come)
 *
 * The job's settings are the value of key "job" (INI text), there from the start.
 */
#ifndef DS_BASE_LINK_H
#define DS_BASE_LINK_H

#include "engine/base/boot.h"

#define LINK_MAX_BYTES 65536
#define LINK_MAX_WORLD (1 << 20)

enum link_type {
    LINK_HELLO = 1, LINK_WELCOME, LINK_PUT, LINK_GET, LINK_VALUE, LINK_FENCE, LINK_FENCED, LINK_PUTFD,
    LINK_GETFD, LINK_FD, LINK_METRIC, LINK_EVENT, LINK_FAIL, LINK_LOST, LINK_REFUSED,
};

struct link; /* a rank's end */

/* From DS_AGENT_FD: says hello, waits for the welcome. *boot is valid until link_close. Starts one
 * reader thread. Without DS_AGENT_FD: ERR_INPUT (the program was not started by ds-launch). */
int link_open(struct link **link, struct boot **boot, struct err *err);
void link_close(struct link *link); /* NULL is fine */

int link_metric(struct link *link, const char *json); /* never waits; 0, or -1 when the agent is gone */
int link_event(struct link *link, const char *json);
void link_fail(struct link *link, const struct err *why);

#endif
