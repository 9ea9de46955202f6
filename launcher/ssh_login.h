/* What of a login needs no libssh: does a key file ask for a passphrase, and the words for a refusal. */
#ifndef DS_SSH_LOGIN_H
#define DS_SSH_LOGIN_H

#include "launcher/ssh_wire.h"

/* 1 when the private key in this file is encrypted. */
int ssh_key_is_locked(const char *path);

/* tried: what was, in words; others: what else the server takes, "" for nothing; partial: it took the key and
 * wants one of the others too. Sets err, names the way out. */
void ssh_login_refused(const struct ssh_login *, const char *tried, const char *others, int partial,
                       struct err *err);

#endif
