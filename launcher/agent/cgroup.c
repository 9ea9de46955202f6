/* The agent's cgroup: see cgroup.h.
 *
 * Keeper and worker hold a lock on the group's folder (one open file, not inherited by ranks): a group that can be
 * locked is a dead agent's. A pid would not tell: containers share the groups and not the pids. */
#include "launcher/agent/agent.h"
#include "launcher/agent/cgroup.h"
#include "engine/base/buf.h"
#include "engine/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CGROUP2 0x63677270
#define PREFIX "ds-agent-"
#define REMOVE_MS 500
#define KILL_ROUNDS 100 /* where the kernel has no cgroup.kill (before 5.14) */

struct cgroup {
    int dir;
    char *path;
    int used, killed, news;
};

/* The folder of our own group in the unified hierarchy; NULL: there is none. Owned. */
static char *own_folder(void)
{
    static const char *const mounts[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"};
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[4096], own[4096] = "";
    struct statfs fs;
    int there = f != NULL;

    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "0::/", 4))
            strcpy(own, line + 4);
    }
    if (f)
        fclose(f);
    for (int i = 0; there && i < 2 && !strstr(own, ".."); i++)
        if (!statfs(mounts[i], &fs) && fs.f_type == CGROUP2)
            return xasprintf("%s%s%s", mounts[i], *own ? "/" : "", own);
    return NULL;
}

static void kill_listed(int dir)
{
    char text[65536], *p, *end;

    for (int round = 0; round < KILL_ROUNDS; round++) {
        int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

        if (fd >= 0)
            close(fd);
        if (n <= 0)
            return;
        text[n] = 0;
        for (p = text; *p; p = end + (*end == '\n')) {
            long pid = strtol(p, &end, 10);

            if (end == p)
                break;
            if (pid > 1) /* 0: of a container that we can't see into */
                kill((pid_t)pid, SIGKILL);
        }
    }
}

static void kill_all(int dir)
{
    int fd = openat(dir, "cgroup.kill", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, "1", 1) != 1)
        kill_listed(dir);
    if (fd >= 0)
        close(fd);
}

static int remove_within(const char *path, int ms)
{
    int64_t end = clock_ms() + ms;
    struct timespec pause = {0, 1000000};

    while (rmdir(path)) {
        if (errno != EBUSY || clock_ms() >= end)
            return errno == ENOENT ? 0 : -1;
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* 1: processes were in it. */
static int sweep_one(const char *path)
{
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    int found = 0;

    if (dir >= 0 && !fstat(dir, &st) && st.st_uid == geteuid() && !flock(dir, LOCK_EX | LOCK_NB) && rmdir(path) &&
        errno == EBUSY) {
        kill_all(dir);
        remove_within(path, REMOVE_MS);
        found = 1;
    }
    if (dir >= 0)
        close(dir);
    return found;
}

/* A cheap first look: a process that has the number in the name. In another container it may be anybody's, then the
 * group is left to a later agent. */
static int seems_alive(const char *name)
{
    int pid = atoi(name + sizeof PREFIX - 1);

    return pid > 0 && (!kill(pid, 0) || errno == EPERM);
}

static int sweep(const char *folder)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    int found = 0;

    while (d && (e = readdir(d)))
        if (!strncmp(e->d_name, PREFIX, sizeof PREFIX - 1) && !seems_alive(e->d_name)) {
            char *path = xasprintf("%s/%s", folder, e->d_name);

            found |= sweep_one(path);
            free(path);
        }
    if (d)
        closedir(d);
    return found;
}

/* Whether a process may be put into it: a group that nobody can enter is of no use. */
static int can_enter(int dir)
{
    return !faccessat(dir, "cgroup.procs", W_OK, 0);
}

struct cgroup *cgroup_make(void)
{
    char *folder = own_folder(), *path;
    struct cgroup *c = NULL;
    struct stat st;
    int dir, found;

    if (!folder)
        return NULL;
    found = sweep(folder);
    path = xasprintf("%s/" PREFIX "%d-%llx", folder, (int)getpid(), (unsigned long long)clock_ns());
    free(folder);
    if (mkdir(path, 0755)) {
        free(path);
        return NULL;
    }
    dir = lift_fd(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    /* between mkdir and lock another agent may have taken it for a dead one's */
    if (dir >= 0 && !flock(dir, LOCK_EX | LOCK_NB) && !stat(path, &st) && can_enter(dir)) {
        c = xcalloc(1, sizeof *c);
        *c = (struct cgroup){dir, path, 0, 0, found};
        return c;
    }
    rmdir(path);
    if (dir >= 0)
        close(dir);
    free(path);
    return NULL;
}

static pid_t fork_into(int dir)
{
    struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)dir};

    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static void enter(int dir)
{
    int fd = openat(dir, "cgroup.procs", O_WRONLY | O_CLOEXEC);

    if (fd >= 0 && write(fd, "0", 1) != 1)
        errno = 0; /* not fatal: reap.h finds it too */
    if (fd >= 0)
        close(fd);
}

/* Into the group at birth: to move there later costs the kernel 10 ms, whatever else the node does. The raw call is
 * enough for a child of a single thread that only calls exec. Not after cgroup.kill: Linux 6.18 then kills who is
 * born into the group from outside. */
pid_t cgroup_fork(struct cgroup *c)
{
    pid_t pid = c && !c->killed ? fork_into(c->dir) : -1;

    if (pid < 0 && (pid = fork()) == 0 && c)
        enter(c->dir);
    if (c)
        c->used = 1;
    return pid;
}

void cgroup_kill(struct cgroup *c)
{
    if (!c || !c->used)
        return;
    c->killed = 1;
    kill_all(c->dir);
}

const char *cgroup_news(struct cgroup *c)
{
    if (!c || !c->news)
        return NULL;
    c->news = 0;
    return "an agent that was killed had left processes here: they are ended";
}

void cgroup_remove(struct cgroup *c)
{
    if (c && rmdir(c->path) && errno == EBUSY) {
        kill_all(c->dir);
        remove_within(c->path, REMOVE_MS);
    }
    if (c) {
        close(c->dir);
        free(c->path);
    }
    free(c);
}
