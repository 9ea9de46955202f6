/* ds-agent: one per node. Its stdin and stdout are the channel to ds-launch (msg.h).
 *
 * Two processes. The keeper waits and kills, nothing else, so there is nothing in it that could go
 * wrong; the worker does the work. Both are subreapers: what the worker leaves behind falls to the
 * keeper, and when the keeper dies the worker, who is still there, ends everything below itself. */
#include "engine/base/build.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/cgroup.h"
#include "launcher/agent/reap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REAP_LIMIT_MS 10000

static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

/* 0, 1 and 2 are open, so that nothing else ever gets these numbers. */
static int open_standard(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
    return fd < 0 ? -1 : 0;
}

/* What whoever started us left open is not ours: a rank must not get it, nor must we keep it alive.
 */
static void close_inherited(void)
{
    if (syscall(SYS_close_range, 3u, ~0u, 0u))
        for (int fd = 3; fd < 1024; fd++) /* before Linux 5.9 */
            close(fd);
}

/* The channel belongs to the worker alone: its end is seen when the worker ends. */
static void leave_channel(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    dup2(fd, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    if (fd > 2)
        close(fd);
}

/* Exit status of the worker once it has ended. */
static int keep(pid_t worker, const sigset_t *set)
{
    for (;;) {
        int signo = sigwaitinfo(set, NULL), status;
        pid_t pid;

        if (signo > 0 && signo != SIGCHLD)
            kill(worker, SIGTERM);
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            if (pid == worker)
                return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (pid < 0 && errno == ECHILD)
            return 1;
    }
}

static int keeper_run(void)
{
    sigset_t set, old;
    struct cgroup *cgroup;
    int life[2], status;
    pid_t worker;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, &old);
    signal(SIGCHLD, SIG_DFL); /* ignored, nothing could be waited for */
    close_inherited();
    if (open_standard()) {
        fprintf(stderr, "ds-agent: cannot start: %s\n", strerror(errno));
        return 1;
    }
    cgroup = cgroup_make();
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) || pipe2(life, O_CLOEXEC) ||
        (worker = fork()) < 0) {
        fprintf(stderr, "ds-agent: cannot start: %s\n", strerror(errno));
        return 1;
    }
    if (worker == 0) {
        sigprocmask(SIG_SETMASK, &old, NULL);
        close(life[1]);
        return worker_run(life[0], cgroup);
    }
    close(life[0]);
    leave_channel();
    status = keep(worker, &set);
    cgroup_remove(cgroup); /* with what the worker left in it */
    if (reap_all(REAP_LIMIT_MS)) {
        fprintf(stderr, "ds-agent: processes are left that cannot be ended\n");
        status = 1;
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc == 2 && (!strcmp(argv[1], "--build-id") || !strcmp(argv[1], "--version"))) {
        printf("%s\n", build_id());
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "--environment"))
        return venv_print();
    if (argc > 1) {
        fprintf(stderr,
                "ds-agent: unknown argument %s: ds-launch starts this program, it takes none "
                "(--build-id prints its build)\n",
                argv[1]);
        return 2;
    }
    return keeper_run();
}
