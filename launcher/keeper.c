/* The outer process: see keeper.h. It is in the same process group as the inner one, so the terminal's signals reach
 * both; the inner one ignores them and acts only on what the outer one passes on, so that each counts once. */
#include "launcher/keeper.h"

#include "engine/base/log.h"
#include "launcher/control.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
#define NPASSED (sizeof passed / sizeof passed[0])

static int ignored(int sig)
{
    struct sigaction old;

    return !sigaction(sig, NULL, &old) && old.sa_handler == SIG_IGN;
}

/* The outer process was killed: the channels close and the agents end everything. */
static void outer_died(int signo)
{
    control_unlink();
    _exit(128 + SIGKILL);
}

static void inner(int (*work)(void *arg, int signals), void *arg, int fd, const sigset_t *old,
                  pid_t outer)
{
    static const int deaf[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGPIPE};
    sigset_t died;
    size_t i;

    signal(SIGRTMIN, outer_died);
    prctl(PR_SET_PDEATHSIG, SIGRTMIN);
    if (getppid() != outer)
        _exit(1);
    for (i = 0; i < NPASSED; i++)
        signal(passed[i], SIG_IGN);
    for (i = 0; i < sizeof deaf / sizeof deaf[0]; i++)
        signal(deaf[i], SIG_IGN);
    sigprocmask(SIG_SETMASK, old, NULL);
    sigemptyset(&died);
    sigaddset(&died, SIGRTMIN);
    sigprocmask(SIG_UNBLOCK, &died, NULL);
    exit(work(arg, fd));
}

static int status_of(int status)
{
    if (WIFSIGNALED(status)) {
        control_list(NULL, NULL); /* its socket goes */
        log_error("ds-launch itself was killed by signal %d; its agents end the ranks", WTERMSIG(status));
        return 128 + WTERMSIG(status);
    }
    return WEXITSTATUS(status);
}

/* Waits for signals until the inner process has ended. */
static int attend(const sigset_t *set, pid_t pid, int fd)
{
    int status, sig;
    unsigned char byte;

    for (;;) {
        sig = sigwaitinfo(set, NULL);
        if (sig < 0)
            continue;
        if (sig == SIGCHLD) {
            if (waitpid(pid, &status, WNOHANG) == pid)
                return status_of(status);
        } else if (sig == SIGTSTP) {
            raise(SIGSTOP);
        } else {
            byte = (unsigned char)sig;
            if (write(fd, &byte, 1) < 0 && errno != EAGAIN)
                log_debug("signal %d came after the end", sig);
        }
    }
}

int keeper_run(int (*work)(void *arg, int signals), void *arg)
{
    sigset_t set, old;
    pid_t outer = getpid(), pid;
    int fd[2], status;
    size_t i;

    sigemptyset(&set);
    for (i = 0; i < NPASSED; i++)
        if (!ignored(passed[i]))
            sigaddset(&set, passed[i]);
    if (!ignored(SIGTSTP))
        sigaddset(&set, SIGTSTP);
    sigaddset(&set, SIGCHLD);
    signal(SIGCHLD, SIG_DFL);
    if (pipe2(fd, O_CLOEXEC | O_NONBLOCK)) {
        log_error("cannot make a pipe: %m");
        return 1;
    }
    sigprocmask(SIG_BLOCK, &set, &old);
    signal(SIGPIPE, SIG_IGN);
    pid = fork();
    if (pid == 0) {
        close(fd[1]);
        inner(work, arg, fd[0], &old, outer);
    }
    close(fd[0]);
    if (pid < 0) {
        log_error("cannot start a process: %m");
        status = 1;
    } else {
        status = attend(&set, pid, fd[1]);
    }
    close(fd[1]);
    return status;
}

int keeper_signals(int signals, void (*take)(void *ctx, int sig), void *ctx)
{
    unsigned char sig[16];
    ssize_t n = read(signals, sig, sizeof sig), i;

    for (i = 0; i < n; i++)
        take(ctx, sig[i]);
    return n == 0 ? -1 : 0;
}
