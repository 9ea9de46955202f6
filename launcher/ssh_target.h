/* Where and how to log in on one host: the hostfile's user and port, the command line, and the
 * ssh_config files, put together. Files are read once per launch. */
#ifndef DS_SSH_TARGET_H
#define DS_SSH_TARGET_H

#include "launcher/known_hosts.h"
#include "launcher/options.h"
#include "launcher/ssh_config.h"

struct ssh_target {
    char *name;         /* as the user wrote it */
    char *host, *user;  /* where to connect, who to be */
    int port, family;
    char *key_name;     /* what known_hosts calls it */
    struct ssh_words identity; /* key files, full paths, in order */
    int nfirst;         /* of them were named by the user: before the agent; the others are defaults */
    char *agent_socket; /* NULL: none */
    int agent_if_locked; /* IdentitiesOnly: ask the agent only for want of a named key's passphrase */
    char *jump;         /* ProxyJump as written, NULL: none */
    int64_t attempt_ms; /* of one TCP connection, -1: not given */
    struct known_hosts *known; /* of ssh_files */
    const char *known_file; /* where a new key would go; of ssh_files, NULL: nowhere */
};
void ssh_target_clear(struct ssh_target *);

struct ssh_files; /* the texts read so far, the known hosts, notes not yet told */

/* Reads the configuration: options->ssh_config ("none": no file at all), else ~/.ssh/config and
 * /etc/ssh/ssh_config. */
int ssh_files_create(struct ssh_files **, const struct options *, struct err *err);
void ssh_files_destroy(struct ssh_files *);

/* user NULL and port 0: not given by the hostfile. */
int ssh_files_target(struct ssh_files *, const char *name, const char *user, int port,
                     struct ssh_target *, struct err *err);

/* The next thing that the user should be told once, or NULL; valid until the next call. */
const char *ssh_files_note(struct ssh_files *);

/* A whole file into out; limit bytes at most. -1: err says why. */
int ssh_read_file(const char *path, size_t limit, struct buf *out, struct err *err);

#endif
