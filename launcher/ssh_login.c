/* Words about a login: see ssh_login.h. */
#include "launcher/ssh_login.h"

#include <stdio.h>
#include <string.h>

int ssh_key_is_locked(const char *path)
{
    char text[4096];
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

    if (f)
        fclose(f);
    text[n] = 0;
    return strstr(text, "ENCRYPTED") != NULL;
}

void ssh_login_refused(const struct ssh_login *l, const char *tried, const char *others, int partial,
                       struct err *err)
{
    struct buf also = BUF_INIT;

    if (partial)
        buf_addf(&also, "; the server took the key and wants more: %s", others);
    else if (*others)
        buf_addf(&also, "; the server would also take %s", others);
    err_set(err, ERR_NODE_AUTH,
            "%s: login as %s refused by %s port %d (%s%s); ds-launch itself logs in by key or ssh-agent only, without "
            "certificates: where \"ssh -o BatchMode=yes %s true\" works, add --launcher openssh",
            l->name, l->user, l->host, l->port, *tried ? tried : "there is no key to try", buf_str(&also), l->name);
    buf_clear(&also);
}
