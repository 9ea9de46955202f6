/* One epoch's ranks on this node: fork, exec, exit. Invariants: every rank of a team gets exactly
 * one EXIT, started or not; a rank leads its own process group and dies with the worker; every
 * descriptor here is close-on-exec, a rank has 0, 1, 2 and DS_AGENT_FD.
 *
 * fork and not posix_spawn: what a rank needs (parent-death signal, affinity, oom score) is set in
 * between. The worker has one thread, so the child may use what it likes. A hung working folder
 * stops only the child: whether exec worked is read from status_fd in the loop. */
#include "launcher/agent/agent.h"
#include "engine/base/clock.h"
#include "launcher/agent/cgroup.h"
#include "launcher/rankenv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANK_LINK_FD 3
#define OOM_ADD 500
#define NOT_STARTED 127
#define SLICE_MS 20 /* of starting ranks, then whatever else is due */

enum { IN, OUT, ERR, LINK, STATUS, PLAN_FDS };

/* What the child needs, made before the fork. */
struct plan {
    int fd[PLAN_FDS]; /* the child's ends; LINK -1: foreign */
    char **env, **argv;
    const struct spawn *spawn;
    const char *cpus;
    pid_t parent;
};

/* Signals wait while there are two of us with the loop's handlers, which write into one pipe. */
pid_t child_fork(struct cgroup *cgroup)
{
    sigset_t all, old;
    pid_t pid;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    pid = cgroup_fork(cgroup);
    if (pid)
        sigprocmask(SIG_SETMASK, &old, NULL);
    return pid;
}

void child_reset(pid_t parent)
{
    static const unsigned long
        all_default[8]; /* the kernel's struct sigaction: SIG_DFL, no flags */
    sigset_t none;

    /* not signal(): it refuses 32 and 33, which some make and shells leave ignored */
    for (int s = 1; s < NSIG; s++)
        syscall(SYS_rt_sigaction, s, all_default, NULL, (NSIG - 1) / 8);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(NOT_STARTED);
}

void exec_error(struct err *err, const char *host, const char *program, const char *cwd, int at,
                int error)
{
    const char *where = at == EXEC_CWD ? cwd : program;

    if (at == EXEC_CWD)
        err_set(err, ERR_INPUT,
                "%s: the working folder %s can't be entered: %s; start from a folder that "
                "every node has, or share it",
                host, where, strerror(error));
    else if (at == EXEC_PROGRAM && error == ENOENT)
        err_set(err, ERR_INPUT,
                "%s: the program %s is not there (or the interpreter that its first line "
                "names): give a path that every node has",
                host, where);
    else if (at == EXEC_SCRIPT)
        err_set(err, ERR_INPUT, "%s: %s can't be read: %s; give a path that every node has", host,
                where, strerror(error));
    else if (at == EXEC_VENV)
        err_set(err, ERR_INPUT, "%s: --venv_script %s can't be read: %s; give a path that every node has", host, where,
                strerror(error));
    else if (at == EXEC_PROGRAM)
        err_set(err, ERR_INPUT, "%s: the program %s can't be started: %s", host, where,
                strerror(error));
    else
        err_set(err, ERR_NODE, "%s: a rank can't be %s: %s", host,
                at == EXEC_CPUS ? "bound to its processors" : "given its descriptors",
                strerror(error));
}

static void child_fail(int status_fd, int at)
{
    int text[2] = {at, errno};
    ssize_t n = write(status_fd, text, sizeof text);

    (void)n;
    _exit(NOT_STARTED);
}

/* So that the kernel, short of memory, takes a rank before the agent. */
static void child_oom_score(void)
{
    char text[32] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC), now, n;

    if (fd < 0)
        return;
    if (read(fd, text, sizeof text - 1) > 0) {
        now = atoi(text) + OOM_ADD;
        n = snprintf(text, sizeof text, "%d", now > 1000 ? 1000 : now);
        if (pwrite(fd, text, (size_t)n, 0) < 0)
            errno = 0; /* not fatal */
    }
    close(fd);
}

/* Not the C library's call: its fixed set ends at 1,024 processors. */
static int child_bind(const char *cpus)
{
    unsigned long bits[TOPO_CPUS / 8 / sizeof(unsigned long)] = {0};
    const int per = 8 * (int)sizeof *bits;
    uint8_t set[TOPO_CPUS];

    if (!*cpus)
        return 0;
    if (cpus_parse(cpus, set, TOPO_CPUS)) {
        errno = EINVAL;
        return -1;
    }
    for (int c = 0; c < TOPO_CPUS; c++)
        bits[c / per] |= (unsigned long)set[c] << (c % per);
    return syscall(SYS_sched_setaffinity, 0, sizeof bits, bits) < 0 ? -1 : 0;
}

static void child_run(const struct plan *p) __attribute__((noreturn));
static void child_run(const struct plan *p)
{
    const struct spawn *s = p->spawn;

    child_reset(p->parent);
    child_oom_score();
    if (child_bind(p->cpus))
        child_fail(p->fd[STATUS], EXEC_CPUS);
    if (dup2(p->fd[IN], 0) < 0 || dup2(p->fd[OUT], 1) < 0 || dup2(p->fd[ERR], 2) < 0 ||
        (p->fd[LINK] >= 0 && dup2(p->fd[LINK], RANK_LINK_FD) < 0))
        child_fail(p->fd[STATUS], EXEC_FDS);
    if (*s->cwd && chdir(s->cwd))
        child_fail(p->fd[STATUS], EXEC_CWD);
    if (s->umask >= 0)
        umask((mode_t)s->umask);
    limits_set(s);
    environ = p->env;
    execvp(p->argv[0], p->argv);
    child_fail(p->fd[STATUS], EXEC_PROGRAM);
    _exit(NOT_STARTED);
}

int lift_fd(int fd)
{
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10);

    if (fd >= 0)
        close(fd);
    return high;
}

static int make_pipe(int *ours, int *theirs, int we_read)
{
    int fd[2];

    if (pipe2(fd, O_CLOEXEC))
        return -1;
    *ours = lift_fd(fd[we_read ? 0 : 1]);
    *theirs = lift_fd(fd[we_read ? 1 : 0]);
    return *ours < 0 || *theirs < 0 ? -1 : 0;
}

/* The program with its arguments, NULL at the end; owned. */
static char **rank_argv(const struct spawn *s, int index, struct err *err)
{
    char **argv = xcalloc((size_t)s->argc + 2, sizeof *argv);
    int n = 0;

    for (int i = 0; i <= s->argc; i++) {
        if (i && i == s->pass_local_rank)
            argv[n++] = xasprintf("--local_rank=%d", index);
        if (i < s->argc)
            argv[n++] = i ? xstrdup(s->argv[i]) : node_rank_program(s, err);
    }
    return argv;
}

static void put_exit(struct rank *r, int code, int signo, int oom)
{
    struct rank_end end = {.code = code, .signal = signo, .oom = oom, .wall = clock_wall()};

    if (r->team->links)
        links_where(r->team->links, r->index, &end);
    if (!r->exited)
        tell_exit(r->team, r->number, &end);
    r->exited = 1;
}

static void status_close(struct rank *r)
{
    watch_destroy(r->status_watch);
    r->status_watch = NULL;
    if (r->status_fd >= 0)
        close(r->status_fd);
    r->status_fd = -1;
}

/* exec worked (end of file: close-on-exec closed it) or the child says what did not. */
static void on_status(void *ctx, int events)
{
    struct rank *r = ctx;
    struct spawn *s = &r->team->spawn;
    struct err err = ERR_INIT;
    int text[2];
    ssize_t n;

    if (r->status_fd < 0)
        return;
    n = read(r->status_fd, text, sizeof text);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    status_close(r);
    if (n == (ssize_t)sizeof text) {
        char *program = node_rank_program(s, &err);

        exec_error(&err, s->host, program, s->cwd, text[0], text[1]);
        team_fail(r->team, (uint32_t)r->number, &err);
        free(program);
        return;
    }
    tell_started(r->team, r->number, r->pid);
}

static int plan_stdin(struct rank *r, struct plan *p, int *ours)
{
    *ours = -1;
    if (r->team->spawn.stdin_rank == r->number || r->team->spawn.stdin_rank == SPAWN_STDIN_ALL)
        return make_pipe(ours, &p->fd[IN], 0);
    p->fd[IN] = lift_fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    return p->fd[IN] < 0 ? -1 : 0;
}

/* Pipes and socket; on failure the rank's own ends are closed by the caller through team_destroy's
 * path. */
static int plan_make(struct rank *r, struct plan *p, int ours[PLAN_FDS], struct err *err)
{
    struct team *t = r->team;
    char *error_file;

    if (plan_stdin(r, p, &ours[IN]) || make_pipe(&ours[OUT], &p->fd[OUT], 1) ||
        make_pipe(&ours[ERR], &p->fd[ERR], 1) || make_pipe(&ours[STATUS], &p->fd[STATUS], 1))
        return err_set(err, ERR_NODE, "%s: pipes for rank %d: %m", t->spawn.host, r->number);
    if (t->links) {
        p->fd[LINK] = lift_fd(links_open(t->links, r->index, err));
        if (p->fd[LINK] < 0)
            return -1;
    }
    error_file = t->links ? NULL : errfile_open(r);
    p->env = rankenv_make(&t->spawn, r->index, t->epoch, t->links ? RANK_LINK_FD : -1, error_file,
                          t->agent->cores, t->agent->env ? t->agent->env : environ);
    free(error_file);
    return 0;
}

static void close_all(const int fd[PLAN_FDS])
{
    for (int i = 0; i < PLAN_FDS; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

/* Our ends, which are the rank's from here on. */
static int rank_watch(struct rank *r, int ours[PLAN_FDS], struct err *err)
{
    int rc;

    r->status_fd = ours[STATUS];
    r->status_watch = watch_create(r->team->agent->loop, r->status_fd, on_status, r, err);
    rc = r->status_watch ? 0 : -1;
    rc |= stdin_open(r, ours[IN], err) | stream_open(&r->out[0], ours[OUT], err) |
          stream_open(&r->out[1], ours[ERR], err);
    for (int i = 0; i < PLAN_FDS; i++)
        ours[i] = -1;
    return rc ? err_prefix(err, "%s: rank %d", r->team->spawn.host, r->number) : 0;
}

static int rank_start(struct rank *r, struct err *err)
{
    struct team *t = r->team;
    struct plan p = {{-1, -1, -1, -1, -1},           NULL,
                     rank_argv(&t->spawn, r->index, err), &t->spawn,
                     t->spawn.rank[r->index].cpus,   getpid()};
    int ours[PLAN_FDS] = {-1, -1, -1, -1, -1}, rc = plan_make(r, &p, ours, err);

    if (rc == 0 && !*p.argv[0])
        rc = -1;
    if (rc == 0)
        rc = rank_watch(r, ours, err);
    if (rc == 0 && (r->pid = child_fork(t->agent->cgroup)) == 0)
        child_run(&p);
    if (rc == 0 && r->pid < 0) {
        r->pid = 0;
        rc = err_set(err, ERR_NODE, "%s: rank %d can't be started: %m", t->spawn.host, r->number);
    }
    if (rc == 0) {
        setpgid(r->pid, r->pid); /* the child does it as well: whoever is first */
        watch_set(r->status_watch, LOOP_READ);
        stdin_begin(r);
    } else {
        status_close(r);
        stdin_close(r);
        close_all(ours);
    }
    close_all(p.fd);
    rankenv_free(p.env);
    rankenv_free(p.argv);
    return rc;
}

/* A rank that never was: its streams end, it exits. */
static void rank_never(struct rank *r)
{
    for (int k = 0; k < 2; k++)
        stream_never(&r->out[k]);
    r->team->running--;
    put_exit(r, NOT_STARTED, 0, 0);
    if (r->team->links)
        links_rank_gone(r->team->links, r->index, 1);
}

static void rank_init(struct team *t, int i)
{
    struct rank *r = &t->rank[i];

    r->team = t;
    r->index = i;
    r->number = t->spawn.rank[i].rank;
    r->in_fd = r->status_fd = r->error_fd = -1;
    for (int k = 0; k < 2; k++) {
        r->out[k].rank = r;
        r->out[k].which = k + 1;
        r->out[k].fd = -1;
    }
}

static void start_some(void *ctx)
{
    struct team *t = ctx;
    int64_t until = clock_ms() + SLICE_MS;

    while (t->started < t->n && clock_ms() <= until) {
        struct rank *r = &t->rank[t->started++];
        struct err err = ERR_INIT;

        if (!t->failed && rank_start(r, &err)) {
            team_fail(t, (uint32_t)r->number, &err);
            t->failed = 1;
        }
        if (!r->pid)
            rank_never(r);
    }
    if (t->started == t->n)
        ticker_stop(t->starter);
}

struct team *team_start(struct agent *a, uint32_t epoch, struct spawn *spawn)
{
    struct team *t = xcalloc(1, sizeof *t);

    t->agent = a;
    t->epoch = epoch;
    t->spawn = *spawn;
    memset(spawn, 0, sizeof *spawn);
    t->n = t->spawn.nranks;
    t->rank = xcalloc((size_t)t->n, sizeof *t->rank);
    for (int i = 0; i < t->n; i++)
        rank_init(t, i);
    t->links = t->spawn.engine ? links_create(t) : NULL;
    t->running = t->n;
    t->starter = ticker_create(a->loop, start_some, t);
    ticker_set(t->starter, 0, 1);
    return t;
}

void team_destroy(struct team *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n; i++) {
        stdin_close(&t->rank[i]);
        status_close(&t->rank[i]);
        errfile_close(&t->rank[i]);
        stream_close(&t->rank[i].out[0]);
        stream_close(&t->rank[i].out[1]);
    }
    ticker_destroy(t->starter);
    links_destroy(t->links);
    spawn_clear(&t->spawn);
    free(t->rank);
    free(t);
}

int team_reaped(struct team *t, pid_t pid, int status)
{
    for (int i = 0; i < t->n; i++) {
        struct rank *r = &t->rank[i];
        int signo = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;

        if (r->pid != pid)
            continue;
        on_status(r, LOOP_READ);
        stream_pump(&r->out[0]);
        stream_pump(&r->out[1]);
        r->pid = 0;
        t->running--;
        stdin_close(r);
        if (t->links)
            links_rank_gone(t->links, i, signo || code);
        errfile_send(r);
        put_exit(r, code, signo, signo == SIGKILL && oom_killed(t->agent->oom, pid));
        return 1;
    }
    return 0;
}

void team_signal(struct team *t, int signo)
{
    for (int i = 0; i < t->n; i++)
        if (t->rank[i].pid)
            kill(-t->rank[i].pid, signo);
    for (int i = 0; i < t->n; i++) /* who is stopped can't take a signal that asks it to end */
        if (t->rank[i].pid && (signo == SIGTERM || signo == SIGINT || signo == SIGHUP))
            kill(-t->rank[i].pid, SIGCONT);
}

int team_streams(const struct team *t)
{
    int n = 0;

    for (int i = 0; i < t->n; i++)
        n += (t->rank[i].out[0].fd >= 0) + (t->rank[i].out[1].fd >= 0);
    return n;
}
