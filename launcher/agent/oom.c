/* Was a rank killed for want of memory? Told from whichever exists: the kernel's log (names the
 * process), the counter of our cgroup (v2 memory.events, v1 memory.oom_control). A guess by nature:
 * the counter says that some process of the group was killed, so it counts only for a rank that
 * died of KILL. */
#include "launcher/agent/agent.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct oom {
    int kmsg;       /* -1: not readable */
    char *counter;  /* a file with an "oom_kill N" line; NULL: none */
    long long seen; /* its count up to now */
};

static long long read_counter(const char *path)
{
    FILE *f = path ? fopen(path, "re") : NULL;
    char line[256];
    long long n = -1;

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "oom_kill %lld", &n) == 1)
            break;
    if (f)
        fclose(f);
    return n;
}

/* "N:memory:/path" (v1) or "0::/path" (v2) to the file that counts; a mount that hides the path (a
 * container) shows its own group at the root. */
static char *counter_of(const char *line)
{
    static const char *const v1[] = {"/sys/fs/cgroup/memory%s/memory.oom_control",
                                     "/sys/fs/cgroup/memory/memory.oom_control"};
    static const char *const v2[] = {"/sys/fs/cgroup%s/memory.events",
                                     "/sys/fs/cgroup/memory.events"};
    const char *path = strrchr(line, ':');
    int is_v2 = strncmp(line, "0::", 3) == 0;

    if (!path || (!is_v2 && !strstr(line, ":memory:")))
        return NULL;
    for (int i = 0; i < 2; i++) {
        const char *form = is_v2 ? v2[i] : v1[i], *hole = strstr(form, "%s");
        char *file = hole ? xasprintf("%.*s%s%s", (int)(hole - form), form, path + 1, hole + 2)
                          : xstrdup(form);

        if (read_counter(file) >= 0)
            return file;
        free(file);
    }
    return NULL;
}

static char *find_counter(void)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[4096], *file = NULL;

    while (f && !file && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        file = counter_of(line);
    }
    if (f)
        fclose(f);
    return file;
}

struct oom *oom_create(void)
{
    struct oom *o = xcalloc(1, sizeof *o);

    o->kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (o->kmsg >= 0)
        lseek(o->kmsg, 0, SEEK_END);
    o->counter = find_counter();
    o->seen = read_counter(o->counter);
    return o;
}

void oom_destroy(struct oom *o)
{
    if (!o)
        return;
    if (o->kmsg >= 0)
        close(o->kmsg);
    free(o->counter);
    free(o);
}

static int log_says(struct oom *o, pid_t pid)
{
    char record[8192], want[64];
    int found = 0;

    snprintf(want, sizeof want, "Killed process %d ", (int)pid);
    for (int i = 0; o->kmsg >= 0 && i < 4096; i++) {
        ssize_t n = read(o->kmsg, record, sizeof record - 1);

        if (n < 0)
            break; /* nothing more, or overrun: what was lost was not seen */
        record[n] = 0;
        found |= strstr(record, want) != NULL;
    }
    return found;
}

int oom_killed(struct oom *o, pid_t pid)
{
    long long now = read_counter(o->counter);
    int counted = o->seen >= 0 && now > o->seen;

    if (now >= 0)
        o->seen = now;
    return log_says(o, pid) || counted;
}
