/* CHECK: would a rank start on this node? For engine ranks the program itself says so (`PROGRAM check JOB
 * --world N`: it is there, it loads, it reads the job and finds its data); for a foreign program we look whether
 * working folder and program are there. Where there is a --venv_script it is sourced first, and the environment it
 * leaves is kept for the ranks (venv.c). Invariant: each CHECK gets one CHECKED, within its deadline,
 * also from a process that the kernel holds: its end is waited for behind the answer. */
#include "launcher/agent/agent.h"
#include "launcher/rankenv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_MS 60000
#define TEXT_BYTES 65536 /* of its output that is kept */
#define ENV_BYTES (8u << 20)
#define JOB_FD 3

enum { SAYS, FAILS, FAILED_EXEC, NSOURCES }; /* stdout, stderr, exec's failure */

struct source {
    struct check *check;
    int fd;
    struct watch *watch;
    struct buf text;
};

struct check {
    struct agent *agent;
    struct spawn spawn;
    uint32_t epoch;
    char *program;
    int sourcing; /* the script runs, the check comes after it */
    pid_t pid;
    int late; /* the answer went out at the deadline */
    struct source source[NSOURCES];
    struct ticker *ticker;
};

static void source_close(struct source *s)
{
    watch_destroy(s->watch);
    s->watch = NULL;
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

static void source_read(struct source *s)
{
    char chunk[4096];

    while (s->fd >= 0) {
        ssize_t n = read(s->fd, chunk, sizeof chunk);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            source_close(s);
        else if (s->text.len < (s->check->sourcing ? ENV_BYTES : TEXT_BYTES))
            buf_add(&s->text, chunk, (size_t)n);
    }
}

static void on_source(void *ctx, int events)
{
    source_read(ctx);
}

void check_destroy(struct check *c)
{
    if (!c)
        return;
    for (int i = 0; i < NSOURCES; i++) {
        source_close(&c->source[i]);
        buf_clear(&c->source[i].text);
    }
    ticker_destroy(c->ticker);
    spawn_clear(&c->spawn);
    free(c->program);
    free(c);
}

static void child_fail(int fd, int at)
{
    int text[2] = {at, errno};
    ssize_t n = write(fd, text, sizeof text);

    (void)n;
    _exit(127);
}

/* As execvp looks for it. */
static int is_program(const char *name, const char *path)
{
    struct stat st;

    if (strchr(name, '/'))
        return !access(name, X_OK) && !stat(name, &st) && !S_ISDIR(st.st_mode);
    for (const char *p = path ? path : "/bin:/usr/bin"; *p;) {
        size_t n = strcspn(p, ":");
        char *file = xasprintf("%.*s/%s", n ? (int)n : 1, n ? p : ".", name);
        int found = !access(file, X_OK) && !stat(file, &st) && !S_ISDIR(st.st_mode);

        free(file);
        if (found)
            return 1;
        p += n;
        p += *p == ':';
    }
    errno = ENOENT;
    return 0;
}

/* The file of `python3 -u FILE.py ...`, as the front end starts one; else NULL. */
static const char *script(const struct spawn *s)
{
    size_t n = s->argc > 2 ? strlen(s->argv[2]) : 0;

    return n > 3 && !strcmp(s->argv[1], "-u") && !strcmp(s->argv[2] + n - 3, ".py") ? s->argv[2]
                                                                                  : NULL;
}

static void child_run(const struct check *c, const int fd[NSOURCES], int job_fd, char **env,
                      pid_t parent) __attribute__((noreturn));
static void child_run(const struct check *c, const int fd[NSOURCES], int job_fd, char **env,
                      pid_t parent)
{
    const struct spawn *s = &c->spawn;
    char world[16], job[32];
    char *argv[] = {c->program, "check", job, "--world", world, NULL};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    child_reset(parent);
    if (dup2(null, 0) < 0 || dup2(fd[SAYS], 1) < 0 || dup2(fd[FAILS], 2) < 0 ||
        dup2(job_fd, JOB_FD) < 0)
        child_fail(fd[FAILED_EXEC], EXEC_FDS);
    if (*s->cwd && chdir(s->cwd))
        child_fail(fd[FAILED_EXEC], EXEC_CWD);
    if (c->sourcing) {
        if (!access(s->venv, R_OK))
            venv_exec(s, env, parent);
        child_fail(fd[FAILED_EXEC], EXEC_VENV);
    }
    if (!s->engine) {
        if (!is_program(c->program, rankenv_value(env, "PATH")))
            child_fail(fd[FAILED_EXEC], EXEC_PROGRAM);
        if (script(s) && access(script(s), R_OK))
            child_fail(fd[FAILED_EXEC], EXEC_SCRIPT);
        _exit(0);
    }
    snprintf(world, sizeof world, "%d", s->world);
    snprintf(job, sizeof job, "/proc/self/fd/%d", JOB_FD);
    environ = env;
    execvp(argv[0], argv);
    child_fail(fd[FAILED_EXEC], EXEC_PROGRAM);
    _exit(127);
}

static void on_late(void *ctx)
{
    struct check *c = ctx;
    struct err err = ERR_INIT;

    kill(-c->pid, SIGKILL);
    if (c->sourcing)
        err_set(&err, ERR_INPUT, "%s: --venv_script %s did not end in time; does it wait for input, or its file system "
                "hang?", c->spawn.host, c->spawn.venv);
    else
        err_set(&err, ERR_NODE, "%s: `%s check` gave no answer in time; look at the file systems of that node",
                c->spawn.host, c->program);
    c->late = 1;
    tell_checked(c->agent, c->epoch, err.code, err.text);
}

static int job_file(const struct spawn *s)
{
    int fd = lift_fd(memfd_create("job.ini", MFD_CLOEXEC));

    if (fd >= 0 &&
        (write(fd, s->job, s->job_len) != (ssize_t)s->job_len || lseek(fd, 0, SEEK_SET) < 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static int check_fork(struct check *c, struct err *err)
{
    int job = job_file(&c->spawn), theirs[NSOURCES] = {-1, -1, -1}, rc = job < 0 ? -1 : 0;
    char **env = rankenv_plain(&c->spawn, c->agent->env ? c->agent->env : environ);
    pid_t parent = getpid();

    for (int i = 0; i < NSOURCES && rc == 0; i++) {
        int fd[2];

        rc = pipe2(fd, O_CLOEXEC);
        if (rc)
            break;
        c->source[i].fd = lift_fd(fd[0]);
        theirs[i] = lift_fd(fd[1]);
        if (c->source[i].fd >= 0 && theirs[i] >= 0)
            c->source[i].watch = watch_create(c->agent->loop, c->source[i].fd, on_source, &c->source[i], err);
        rc = c->source[i].watch ? 0 : -1;
        if (!rc)
            watch_set(c->source[i].watch, LOOP_READ);
    }
    if (rc == 0 && (c->pid = child_fork(NULL)) == 0)
        child_run(c, theirs, job, env, parent);
    if (rc || c->pid < 0)
        rc = err_set(err, ERR_NODE, "%s: the job can't be checked: %m", c->spawn.host);
    else
        setpgid(c->pid, c->pid);
    for (int i = 0; i < NSOURCES; i++)
        if (theirs[i] >= 0)
            close(theirs[i]);
    if (job >= 0)
        close(job);
    rankenv_free(env);
    return rc;
}

void check_start(struct agent *a, uint32_t epoch, struct spawn *spawn)
{
    struct check *c = xcalloc(1, sizeof *c);
    struct err err = ERR_INIT;
    int64_t limit = spawn->check_ms > 0 ? spawn->check_ms : DEFAULT_MS;

    c->agent = a;
    c->epoch = epoch;
    c->spawn = *spawn;
    memset(spawn, 0, sizeof *spawn);
    for (int i = 0; i < NSOURCES; i++) {
        c->source[i].check = c;
        c->source[i].fd = -1;
    }
    c->sourcing = *c->spawn.venv && !a->env;
    c->program = node_rank_program(&c->spawn, &err);
    if (a->check)
        err_set(&err, ERR_JOB_INTERNAL, "%s: a check is running already", c->spawn.host);
    else if (!err.code && !port_claim(a, &c->spawn, &err))
        check_fork(c, &err);
    if (err.code) {
        tell_checked(a, epoch, err.code, err.text);
        check_destroy(c);
        return;
    }
    a->check = c;
    c->ticker = ticker_create(a->loop, on_late, c);
    ticker_set(c->ticker, limit, 0);
}

/* The text without blank ends; the loader's own line when that is why. */
static const char *complaint(struct buf *text)
{
    char *p = text->data, *line;

    while (text->len && strchr(" \t\r\n", p[text->len - 1]))
        p[--text->len] = 0;
    line = p ? strstr(p, "error while loading shared libraries") : NULL;
    while (line && line > p && line[-1] != '\n')
        line--;
    if (line)
        line[strcspn(line, "\n")] = 0;
    return line ? line : buf_str(text);
}

/* What to say about how it ended; err stays ERR_OK when it is content. */
static void judge(struct check *c, int status, struct err *err)
{
    const char *host = c->spawn.host, *program = c->program;
    const char *text = complaint(&c->source[FAILS].text);
    struct buf *failed = &c->source[FAILED_EXEC].text;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

    if (failed->len == 2 * sizeof(int)) {
        int why[2];

        memcpy(why, failed->data, sizeof why);
        exec_error(err, host,
                   why[0] == EXEC_SCRIPT ? script(&c->spawn) : why[0] == EXEC_VENV ? c->spawn.venv : program,
                   c->spawn.cwd, why[0], why[1]);
    } else if (code == 127 && strstr(text, "shared libraries")) {
        err_set(err, ERR_NODE, "%s: %s can't be loaded: %s; install what is missing there", host,
                program, text);
    } else if (code < 0) {
        err_set(err, ERR_NODE, "%s: `%s check` was ended by signal %d%s%s", host, program,
                WTERMSIG(status), *text ? ": " : "", text);
    } else if (code > 0) {
        err_set(err, code == 2 ? ERR_INPUT : ERR_NODE, "%s: %s%s", host, text,
                *text ? "" : "the check of the job failed without a word");
    }
}

/* The script has ended: its environment is kept and the check proper begins. */
static void sourced(struct check *c, int status, struct err *err)
{
    const struct buf *says = &c->source[SAYS].text;
    const char *text = complaint(&c->source[FAILS].text), *line = strrchr(text, '\n');

    line = line ? line + 1 : text;
    if (c->source[FAILED_EXEC].text.len)
        judge(c, status, err);
    else if (!WIFEXITED(status) || WEXITSTATUS(status))
        err_set(err, ERR_INPUT, "%s: --venv_script %s ended with %s %d%s%s", c->spawn.host, c->spawn.venv,
                WIFEXITED(status) ? "code" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                *line ? ": " : "", line);
    else if (!(c->agent->env = venv_take(buf_str(says), says->len)))
        err_set(err, ERR_INPUT, "%s: --venv_script %s ended the shell, so that no environment was left to read",
                c->spawn.host, c->spawn.venv);
    if (err->code)
        return;
    venv_late(&c->spawn);
    c->sourcing = 0;
    for (int i = 0; i < NSOURCES; i++) {
        source_close(&c->source[i]);
        buf_reset(&c->source[i].text);
    }
    check_fork(c, err);
}

int check_reaped(struct agent *a, pid_t pid, int status)
{
    struct check *c = a->check;
    struct err err = ERR_INIT;

    if (!c || c->pid != pid)
        return 0;
    for (int i = 0; i < NSOURCES; i++)
        source_read(&c->source[i]);
    if (c->late) {
        a->check = NULL;
        check_destroy(c);
        return 1;
    }
    if (c->sourcing) {
        sourced(c, status, &err);
        if (!err.code)
            return 1;
    } else {
        judge(c, status, &err);
    }
    tell_checked(a, c->epoch, err.code, err.code ? err.text : buf_str(&c->source[SAYS].text));
    a->check = NULL;
    check_destroy(c);
    return 1;
}
