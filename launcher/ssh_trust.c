/* Host keys against the record: see ssh_trust.h. There is no way to let an unknown key pass. */
#include "launcher/ssh_trust.h"

#include <string.h>

void ssh_target_algorithms(const struct ssh_target *t, struct buf *out)
{
    known_hosts_algorithms(t->known, t->key_name, t->port, out);
}

int ssh_target_other_types(const struct ssh_target *t, const char *type, struct buf *out)
{
    struct known_set set = {0};
    int bare, others = 0;

    known_hosts_find(t->known, t->key_name, t->port, &set, &bare);
    for (int i = 0; i < set.n; i++) {
        if (set.key[i]->revoked)
            continue;
        if (!strcmp(set.key[i]->type, type)) {
            others = 0;
            break;
        }
        others = 1;
    }
    if (others)
        known_set_algorithms(&set, out);
    known_set_clear(&set);
    return others;
}

/* ssh-keyscan where it reaches the host and writes the name that is looked up, else the line itself. */
static void how_to_add(const struct ssh_target *t, const char *type, const char *blob, struct buf *out)
{
    const char *file = t->known_file ? t->known_file : "a known_hosts file";

    if (!t->jump && !strcmp(t->key_name, t->host)) {
        buf_addf(out, "ssh-keyscan -p %d %s >> %s", t->port, t->host, file);
        return;
    }
    buf_adds(out, "echo '");
    known_hosts_name(t->key_name, t->port, out);
    buf_addf(out, " %s %s' >> %s", type, blob, file);
}

static int refuse_unknown(const struct ssh_target *t, const char *type, const char *blob,
                          const char *fingerprint, struct err *err)
{
    struct buf name = BUF_INIT, add = BUF_INIT;

    known_hosts_name(t->key_name, t->port, &name);
    how_to_add(t, type, blob, &add);
    err_set(err, ERR_NODE_AUTH,
            "%s: the host key of %s is not on record, so it is not trusted (%s %s); if that is its key, "
            "add it with: %s",
            t->name, buf_str(&name), type, fingerprint, buf_str(&add));
    buf_clear(&name);
    buf_clear(&add);
    return -1;
}

int ssh_target_trust(const struct ssh_target *t, const char *type, const char *blob,
                     const char *fingerprint, struct err *err)
{
    const struct known_key *at;

    switch (known_hosts_check(t->known, t->key_name, t->port, type, blob, &at)) {
    case KNOWN_OK:
        return 0;
    case KNOWN_REVOKED:
        return err_set(err, ERR_NODE_AUTH, "%s: the host key of %s (%s %s) is marked @revoked in %s:%d",
                       t->name, t->host, type, fingerprint, at->file, at->line);
    case KNOWN_CHANGED:
        return err_set(err, ERR_NODE_AUTH,
                       "%s: THE HOST KEY OF %s HAS CHANGED: it shows %s %s, on record is another %s key in "
                       "%s:%d; either somebody is in between, or the host was set up anew: then remove "
                       "that line",
                       t->name, t->host, type, fingerprint, at->type, at->file, at->line);
    default:
        return refuse_unknown(t, type, blob, fingerprint, err);
    }
}
