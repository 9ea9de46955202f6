/* Is this the host's key? The judgement over what a server showed, and the words for it. Pure. */
#ifndef DS_SSH_TRUST_H
#define DS_SSH_TRUST_H

#include "launcher/ssh_target.h"

/* 0 when the key is on record for the target; -1 and ERR_NODE_AUTH when it is not (with the command that
 * would add it), is another one than on record, or was revoked (with file and line). */
int ssh_target_trust(const struct ssh_target *, const char *type, const char *blob,
                     const char *fingerprint, struct err *err);

/* The host key algorithms to ask this target for: those on record first, as far as that is known without trying
 * every hashed line. */
void ssh_target_algorithms(const struct ssh_target *, struct buf *out);
/* After a key of this type was not trusted: 1 when the target is on record with other types only; then out gets
 * the algorithms with these first, and asking once more may bring the server's other key. */
int ssh_target_other_types(const struct ssh_target *, const char *type, struct buf *out);

#endif
