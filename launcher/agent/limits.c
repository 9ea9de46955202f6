/* A rank's resource limits. Files and locked memory: as much as the node allows, since libraries for RDMA and data
 * loaders need more than a login gives and programs rarely ask. Core files: as in the user's shell, which the
 * node's login knows nothing of. Called in the child. */
#include "launcher/agent/agent.h"

#include <sys/resource.h>

#define FILES_MOST (1u << 20) /* some nodes allow a billion, and there are programs that close each */

/* Down, too: we may have inherited more from who started us here. */
static void set_to(int what, rlim_t most)
{
    struct rlimit l;

    if (getrlimit(what, &l))
        return;
    if (l.rlim_max != RLIM_INFINITY && l.rlim_max < most)
        most = l.rlim_max;
    l.rlim_cur = most;
    setrlimit(what, &l);
}

static void set_core(int64_t bytes)
{
    rlim_t want = bytes < 0 ? RLIM_INFINITY : (rlim_t)bytes;
    struct rlimit l;

    if (bytes == SPAWN_CORE_KEEP || getrlimit(RLIMIT_CORE, &l))
        return;
    l.rlim_cur = l.rlim_max == RLIM_INFINITY || want < l.rlim_max ? want : l.rlim_max;
    setrlimit(RLIMIT_CORE, &l);
}

void limits_set(const struct spawn *s)
{
    set_to(RLIMIT_NOFILE, FILES_MOST);
    set_to(RLIMIT_MEMLOCK, RLIM_INFINITY);
    set_core(s->core_bytes);
}
