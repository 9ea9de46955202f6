/* The scripts run on a node: see ssh_remote.h. The agent is named by its SHA-256, so a name in the cache
 * always means the same bytes, whichever version of ds-launch put them there. */
#include "launcher/ssh_remote.h"

#define NAME_DIGITS 32
/* A container's account may have no home that it can write: then a folder of its own in /tmp. */
#define FOLDER                                                                                       \
    "d=${XDG_CACHE_HOME:-${HOME:-}/.cache}/ds-launch; "                                               \
    "[ -d \"$d\" ] || mkdir -m 700 -p \"$d\" 2>/dev/null || { "                                      \
    "d=/tmp/ds-launch-$(id -u); mkdir -m 700 \"$d\" 2>/dev/null; "                                   \
    "case $(ls -ld \"$d\") in d*) [ -O \"$d\" ];; *) false;; esac || { "                             \
    "echo \"neither the home nor $d can be used\" >&2; exit 43; }; }; a=$d/agent-"

void remote_run_script(const char *sha, const char *machine, struct buf *out)
{
    /* the file of the kernel, where it is (Linux 6.1), saves a process */
    buf_addf(out,
             "{ read -r m </proc/sys/kernel/arch; } 2>/dev/null || m=$(uname -m); "
             "[ \"$m\" = %s ] || { "
             "echo \"this node is $m and the agent was built for %s\" >&2; exit %d; }; " FOLDER "%.*s; "
             "[ -x \"$a\" ] && case $(sha256sum <\"$a\") in %s*) exec \"$a\";; esac; "
             "echo \"" REMOTE_MISSING_LINE "\" >&2; exit %d",
             machine, machine, REMOTE_MACHINE, NAME_DIGITS, sha, sha, REMOTE_MISSING);
}

void remote_copy_script(const char *sha, const char *token, struct buf *out)
{
    /* agents that nobody copied anew for a month make room */
    buf_addf(out,
             "umask 077; " FOLDER "%.*s; t=$a.%s; "
             "find \"$d\" -name \"agent-*\" -mtime +30 -exec rm -f {} +; "
             "cat >\"$t\" && chmod 700 \"$t\" && s=$(sha256sum <\"$t\") && "
             "case $s in %s*) [ -x \"$t\" ] && mv -f \"$t\" \"$a\" && exit 0; "
             "echo \"no program can be run from $d\" >&2;; "
             "*) echo \"$t differs from what was sent\" >&2;; esac; "
             "rm -f \"$t\"; exit %d",
             NAME_DIGITS, sha, token, sha, REMOTE_COPY);
}

void remote_run_command(const char *sha, const char *machine, struct buf *out)
{
    buf_adds(out, "exec /bin/sh -c '");
    remote_run_script(sha, machine, out);
    buf_adds(out, "'");
}

void remote_copy_command(const char *sha, const char *token, struct buf *out)
{
    buf_adds(out, "exec /bin/sh -c '");
    remote_copy_script(sha, token, out);
    buf_adds(out, "'");
}
