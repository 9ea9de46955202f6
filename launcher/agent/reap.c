/* Descendants: see reap.h.
 *
 * A process group lies within one session, and a session's members descend from the process that
 * made it. So when this process leads its session (the worker calls setsid before it starts
 * anything), every group of a descendant other than our own holds descendants only, and may be
 * signalled as a whole. Single processes are signalled by pidfd after their start time was read
 * again: a pid that was used anew in between is left alone. */
#include "launcher/agent/reap.h"
#include "engine/base/buf.h"
#include "engine/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct proc {
    pid_t pid, parent, group;
    unsigned long long start;
    char state;
    char ours;
};

struct procs {
    struct proc *p;
    int n, cap;
};

/* /proc/PID/stat; the name in it may hold anything, so fields are counted from its last bracket. */
static int proc_read(pid_t pid, struct proc *p)
{
    char path[64], text[1024], *tail;
    ssize_t n;
    int fd, ppid, pgrp;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return -1;
    text[n] = 0;
    tail = strrchr(text, ')');
    if (!tail || sscanf(tail + 1,
                        " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d"
                        " %*d %llu",
                        &p->state, &ppid, &pgrp, &p->start) != 4)
        return -1;
    p->pid = pid;
    p->parent = ppid;
    p->group = pgrp;
    p->ours = 0;
    return 0;
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct proc *)a)->pid, y = ((const struct proc *)b)->pid;

    return (x > y) - (x < y);
}

static struct proc *proc_find(const struct procs *all, pid_t pid)
{
    struct proc key = {.pid = pid};

    return all->n ? bsearch(&key, all->p, (size_t)all->n, sizeof key, by_pid) : NULL;
}

/* All processes, those below self marked. */
static void procs_scan(struct procs *all, pid_t self)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    int changed = 1;

    while (d && (e = readdir(d))) {
        ARRAY_GROW(all->p, all->n, all->cap);
        if (*e->d_name >= '1' && *e->d_name <= '9' && !proc_read(atoi(e->d_name), &all->p[all->n]))
            all->n++;
    }
    if (d)
        closedir(d);
    if (all->n)
        qsort(all->p, (size_t)all->n, sizeof *all->p, by_pid);
    while (changed) { /* as many rounds as the tree is deep where pids wrapped, two otherwise */
        changed = 0;
        for (int i = 0; i < all->n; i++) {
            const struct proc *parent = proc_find(all, all->p[i].parent);

            if (!all->p[i].ours && (all->p[i].parent == self || (parent && parent->ours))) {
                all->p[i].ours = 1;
                changed = 1;
            }
        }
    }
}

static void signal_one(const struct proc *p, int signo)
{
    struct proc again;
    int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    int no_pidfd = fd < 0 && errno == ENOSYS; /* before Linux 5.3 */

    if (proc_read(p->pid, &again) || again.start != p->start) {
        if (fd >= 0)
            close(fd);
        return;
    }
    if (fd >= 0) {
        syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0);
        close(fd);
    } else if (no_pidfd) {
        kill(p->pid, signo);
    }
}

/* Whether an earlier one of ours is in the same group, which then has its signal already. */
static int group_done(const struct procs *all, int i)
{
    for (int k = 0; k < i; k++)
        if (all->p[k].ours && all->p[k].state != 'Z' && all->p[k].group == all->p[i].group)
            return 1;
    return 0;
}

/* We are a subreaper: who has no child has no descendant. The scan reads every process of the node. */
static int childless(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && errno == ECHILD;
}

int reap_signal(int signo, pid_t *sample, int max)
{
    struct procs all = {NULL, 0, 0};
    pid_t own = getpgrp();
    int seen = 0;

    if (childless())
        return 0;
    procs_scan(&all, getpid());
    for (int i = 0; i < all.n; i++) {
        const struct proc *p = &all.p[i];

        if (!p->ours || p->state == 'Z' || p->state == 'X')
            continue;
        if (sample && seen < max)
            sample[seen] = p->pid;
        seen++;
        if (p->group == own || p->group <= 1)
            signal_one(p, signo);
        else if (!group_done(&all, i))
            kill(-p->group, signo);
    }
    free(all.p);
    return seen;
}

int reap_children(void (*dead)(void *ctx, pid_t pid, int status), void *ctx)
{
    int status;
    pid_t pid;

    for (;;) {
        pid = waitpid(-1, &status, WNOHANG);
        if (pid > 0 && dead)
            dead(ctx, pid, status);
        if (pid == 0)
            return 0;
        if (pid < 0 && errno != EINTR)
            return errno == ECHILD;
    }
}

int reap_all(int limit_ms)
{
    int64_t end = clock_ms() + limit_ms;

    while (!reap_children(NULL, NULL)) {
        struct timespec pause = {0, 2000000};

        if (clock_ms() > end)
            return -1;
        reap_signal(SIGKILL, NULL, 0);
        nanosleep(&pause, NULL);
    }
    return 0;
}
