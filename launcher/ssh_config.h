/* What ~/.ssh/config and /etc/ssh/ssh_config say about one host: a strict reader for the part of
 * ssh_config(5) that ds-launch follows. Pure: files are read through a callback.
 *
 * The first value found wins, as in OpenSSH, so files are applied user's first. What would change who
 * can log in, or how the host is reached, and is not followed gives a note that names the keyword, when
 * its block matched; cosmetic keywords are passed over in silence. */
#ifndef DS_SSH_CONFIG_H
#define DS_SSH_CONFIG_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

struct ssh_words {
    char **word;
    int n, cap;
    int given; /* 1 even when the list is "none" */
};

enum ssh_family { SSH_FAMILY_ANY, SSH_FAMILY_INET, SSH_FAMILY_INET6 };

struct ssh_config {
    char *hostname, *user, *proxy_jump, *identity_agent, *host_key_alias; /* NULL: not given */
    int port;                   /* 0: not given */
    int identities_only;        /* -1: not given */
    int family;                 /* enum ssh_family, -1: not given */
    int64_t connect_timeout_ms; /* -1: not given */
    struct ssh_words identity;  /* all of them, in order */
    struct ssh_words user_known_hosts, global_known_hosts;
    struct buf notes;           /* lines "FILE:LINE: ..." */
    int skim;                   /* set by the caller: pass over blocks of other hosts without checking them */
};

void ssh_config_init(struct ssh_config *);
void ssh_config_clear(struct ssh_config *);

/* Gives the files that an Include pattern stands for: pattern may hold ~ and wildcards, and is relative to
 * ~/.ssh or /etc/ssh (user: 1 in the user's own file). Calls each() per readable file, in order. */
struct ssh_config_files {
    void *ctx;
    int (*include)(void *ctx, const char *pattern, int user,
                   int (*each)(void *arg, const char *file, const char *text, size_t len, struct err *),
                   void *arg, struct err *);
};

/* Applies one file to c for the host as the user wrote it. 0, or -1 and err "FILE:LINE: ...". files NULL:
 * Include is an error. */
int ssh_config_apply(struct ssh_config *c, const char *host, const char *file, int user,
                     const char *text, size_t len, const struct ssh_config_files *files,
                     struct err *err);

/* %h %n %p %r %u %d %% in text; ~ and ~/ at its start become home. -1: another token. */
struct ssh_tokens {
    const char *host, *original, *remote_user, *local_user, *home; /* NULL: not available here */
    int port;
};
int ssh_config_expand(const char *text, const struct ssh_tokens *, struct buf *out, struct err *err);

/* Splits "[user@]host[:port]", "[user@][v6]:port" or "ssh://..."; n bytes. *user may become NULL and *port
 * 0. 0 or -1. */
int ssh_split_destination(const char *text, size_t n, char **user, char **host, int *port);

#endif
