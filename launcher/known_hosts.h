/* Known host keys, from files in OpenSSH's format (sshd(8)), read once and looked up in memory. Pure: the
 * caller reads the files.
 *
 * Plain names are found by a hash table, patterns one by one. Hashed names cost an HMAC per line, so whether a
 * shown key is the host's is asked the other way round: known_hosts_check looks at the lines with that key first,
 * and at all of them (known_hosts_find) only to say what is wrong. A look-up remembers names that it found out. */
#ifndef DS_KNOWN_HOSTS_H
#define DS_KNOWN_HOSTS_H

#include "engine/base/buf.h"

struct known_hosts;

struct known_hosts *known_hosts_create(void);
void known_hosts_destroy(struct known_hosts *);

/* Adds the lines of one file. Lines that cannot be read are skipped, as OpenSSH does, and told in notes
 * ("FILE:LINE: ...\n"), as are @cert-authority lines, which are ignored. notes may be NULL. */
void known_hosts_add(struct known_hosts *, const char *file, const char *text, size_t len,
                     struct buf *notes);

struct known_key {
    const char *type; /* ssh-ed25519 ... */
    const char *blob; /* base64 */
    const char *file; /* owned by known_hosts, as all of these */
    int line, revoked;
};

struct known_set {
    const struct known_key **key;
    int n, cap;
};

/* The keys on record for a host and port, in file order. For a port other than 22 that is what stands
 * under [host]:port; when nothing does, what stands under the bare name (then *bare is 1: such a key
 * may prove the host, and its absence proves nothing). */
void known_hosts_find(struct known_hosts *, const char *host, int port, struct known_set *,
                      int *bare);
void known_set_clear(struct known_set *);

enum known_status { KNOWN_OK, KNOWN_UNKNOWN, KNOWN_CHANGED, KNOWN_REVOKED };

/* Judges the key that a server showed. *at: the line that decides (NULL for KNOWN_UNKNOWN). A key of a
 * type that is not on record, where other types are, counts as changed. */
enum known_status known_set_check(const struct known_set *, int bare, const char *type,
                                  const char *blob, const struct known_key **at);

/* The same for a host, without looking at every hashed line unless the answer is no. */
enum known_status known_hosts_check(struct known_hosts *, const char *host, int port, const char *type,
                                    const char *blob, const struct known_key **at);

/* The order in which host key algorithms are asked for: those on record first, so that a server with
 * several keys shows one that can be checked. Comma-separated names. */
void known_set_algorithms(const struct known_set *, struct buf *out);
/* The same without looking at hashed lines: where only they could name the host, the types that occur in
 * them come first. */
void known_hosts_algorithms(const struct known_hosts *, const char *host, int port, struct buf *out);

/* "host" or "[host]:port", as known_hosts files and ssh-keyscan write it. */
void known_hosts_name(const char *host, int port, struct buf *out);

#endif
