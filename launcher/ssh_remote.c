/* The scripts run on a node: see ssh_remote.h. The agent is named by its SHA-256, so a name in the cache
 * always means the same bytes, whichever version of ds-launch put them there. */
#include "launcher/ssh_remote.h"

#define NAME_DIGITS 32
#define FOLDER "d=${XDG_CACHE_HOME:-$HOME/.cache}/ds-launch; a=$d/agent-"

void remote_run_command(const char *sha, const char *machine, struct buf *out)
{
    buf_addf(out,
             "exec /bin/sh -c '"
             "m=$(uname -m); [ \"$m\" = %s ] || { "
             "echo \"this node is $m and the agent was built for %s\" >&2; exit %d; }; " FOLDER "%.*s; "
             "[ -x \"$a\" ] || exit %d; exec \"$a\"'",
             machine, machine, REMOTE_MACHINE, NAME_DIGITS, sha, REMOTE_MISSING);
}

void remote_copy_command(const char *sha, const char *token, struct buf *out)
{
    /* agents that nobody copied anew for a month make room */
    buf_addf(out,
             "exec /bin/sh -c 'umask 077; " FOLDER "%.*s; t=$a.%s; "
             "mkdir -p \"$d\" || exit %d; find \"$d\" -name \"agent-*\" -mtime +30 -exec rm -f {} +; "
             "cat >\"$t\" && chmod 700 \"$t\" && s=$(sha256sum <\"$t\") && "
             "case $s in %s*) mv -f \"$t\" \"$a\" && exit 0;; "
             "*) echo \"$t differs from what was sent\" >&2;; esac; "
             "rm -f \"$t\"; exit %d'",
             NAME_DIGITS, sha, token, REMOTE_COPY, sha, REMOTE_COPY);
}
