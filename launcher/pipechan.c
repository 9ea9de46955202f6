/* A channel over the pipes of a child process: see pipechan.h.
 *
 * Invariants: the child is always reaped (its pidfd stands in the loop until waitpid gave the status); down
 * is told once, after the child was reaped or could not be brought to end; close may come at any time, and the
 * memory goes when the last handle's close callback has run and the child is reaped. */
#include "launcher/pipechan.h"

#include "engine/base/log.h"
#include "launcher/magic.h"
#include "launcher/said.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_BYTES 65536
#define END_WAIT_MS 5000  /* from the end of its output until the child is killed */
#define DRAIN_MS 300      /* from the child's end until its pipes count as ended */

enum { IN, OUT, ERR_OUT, PIPES };

struct pipechan {
    uv_loop_t *loop;
    char *what;
    struct channel_events events;
    void *ctx;
    pid_t pid;
    int reaped, status;
    uv_poll_t pipe[PIPES], proc;
    int fd[PIPES], pidfd;
    int open[PIPES], proc_open;
    uv_timer_t timer;
    uv_idle_t later;          /* down is never told from inside a call */
    int handles;              /* not yet closed */
    struct magic magic;
    struct buf out;           /* queued for the child */
    struct said said;
    int shut, told, closing;
};

static void settle(struct pipechan *ch);

static void handle_closed(uv_handle_t *h)
{
    struct pipechan *ch = h->data;

    ch->handles--;
    settle(ch);
}

static void close_pipe(struct pipechan *ch, int i)
{
    if (!ch->open[i])
        return;
    ch->open[i] = 0;
    uv_poll_stop(&ch->pipe[i]);
    uv_close((uv_handle_t *)&ch->pipe[i], handle_closed);
    close(ch->fd[i]);
}

/* The error of a channel that is down: the child's status and the last it said. */
static void why_down(struct pipechan *ch, struct err *why)
{
    struct buf text = BUF_INIT;
    const char *said = pipechan_said(ch);
    size_t n = strlen(said);

    *why = (struct err)ERR_INIT;
    if (ch->magic.found && ch->reaped && WIFEXITED(ch->status) && WEXITSTATUS(ch->status) == 0)
        return;
    if (ch->shut)
        return;
    while (n && strchr("\r\n ", said[n - 1]))
        n--;
    if (!ch->reaped)
        buf_addf(&text, "%s closed its output", ch->what);
    else if (WIFSIGNALED(ch->status))
        buf_addf(&text, "%s was killed by signal %d (%s)", ch->what, WTERMSIG(ch->status),
                 strsignal(WTERMSIG(ch->status)));
    else
        buf_addf(&text, "%s ended with status %d", ch->what, WEXITSTATUS(ch->status));
    if (!ch->magic.found)
        buf_adds(&text, " before it answered");
    if (n > 600) {
        said += n - 600;
        n = 600;
    }
    if (n)
        buf_addf(&text, "; it said: %.*s", (int)n, said);
    err_set(why, ERR_NODE, "%s", buf_str(&text));
    buf_clear(&text);
}

static void later_down(uv_idle_t *idle)
{
    struct pipechan *ch = idle->data;
    struct err why;

    uv_idle_stop(idle);
    if (ch->told || ch->closing)
        return;
    ch->told = 1;
    why_down(ch, &why);
    ch->events.down(ch->ctx, &why);
}

static void timer_fired(uv_timer_t *t)
{
    struct pipechan *ch = t->data;

    if (!ch->reaped) {
        kill(-ch->pid, SIGKILL);
        kill(ch->pid, SIGKILL);
        return;
    }
    close_pipe(ch, OUT);
    close_pipe(ch, ERR_OUT);
    close_pipe(ch, IN);
    settle(ch);
}

/* Looks what is left to do: to wait for the child, to tell down, to free. */
static void settle(struct pipechan *ch)
{
    if (ch->proc_open && ch->reaped) {
        ch->proc_open = 0;
        uv_poll_stop(&ch->proc);
        uv_close((uv_handle_t *)&ch->proc, handle_closed);
        close(ch->pidfd);
        if (!uv_is_closing((uv_handle_t *)&ch->timer))
            uv_timer_start(&ch->timer, timer_fired, DRAIN_MS, 0);
    }
    if (!ch->open[OUT] && !ch->reaped && !uv_is_active((uv_handle_t *)&ch->timer) &&
        !uv_is_closing((uv_handle_t *)&ch->timer)) {
        close_pipe(ch, IN);
        uv_timer_start(&ch->timer, timer_fired, END_WAIT_MS, 0);
    }
    if (ch->reaped && !ch->open[OUT] && !ch->open[ERR_OUT] && !ch->told && !ch->closing)
        uv_idle_start(&ch->later, later_down);
    if (!ch->closing || !ch->reaped)
        return;
    if (!uv_is_closing((uv_handle_t *)&ch->timer)) {
        uv_close((uv_handle_t *)&ch->timer, handle_closed);
        uv_close((uv_handle_t *)&ch->later, handle_closed);
    }
    if (ch->handles)
        return;
    magic_clear(&ch->magic);
    buf_clear(&ch->out);
    said_clear(&ch->said);
    free(ch->what);
    free(ch);
}

static void on_child(uv_poll_t *p, int status, int events)
{
    struct pipechan *ch = p->data;
    pid_t rc;

    (void)status;
    (void)events;
    rc = waitpid(ch->pid, &ch->status, WNOHANG);
    if (rc == 0 || (rc < 0 && errno == EINTR))
        return;
    ch->reaped = 1;
    settle(ch);
}

static void give(struct pipechan *ch, const char *data, size_t n)
{
    size_t at;

    if (!ch->magic.found) {
        at = magic_feed(&ch->magic, data, n);
        if (magic_hopeless(&ch->magic)) {
            kill(-ch->pid, SIGKILL);
            return;
        }
        if (!ch->magic.found)
            return;
        ch->events.up(ch->ctx);
        data += at;
        n -= at;
    }
    if (n && !ch->closing)
        ch->events.data(ch->ctx, data, n);
}

static void err_line(void *ctx, const char *line)
{
    struct pipechan *ch = ctx;

    if (ch->magic.found && !ch->closing)
        ch->events.stderr_line(ch->ctx, line);
}

static void on_readable(uv_poll_t *p, int status, int events)
{
    struct pipechan *ch = p->data;
    int i = p == &ch->pipe[OUT] ? OUT : ERR_OUT;
    char data[READ_BYTES];
    ssize_t n;

    (void)events;
    n = status < 0 ? 0 : read(ch->fd[i], data, sizeof data);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && i == OUT) {
        give(ch, data, (size_t)n);
    } else if (n > 0) {
        said_feed(&ch->said, data, (size_t)n, err_line, ch);
    } else {
        if (i == ERR_OUT)
            said_end(&ch->said, err_line, ch);
        close_pipe(ch, i);
        settle(ch);
    }
}

static void on_writable(uv_poll_t *p, int status, int events)
{
    struct pipechan *ch = p->data;
    ssize_t n;

    (void)events;
    n = status < 0 ? -1 : write(ch->fd[IN], ch->out.data, ch->out.len);
    if (n < 0 && status >= 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        close_pipe(ch, IN);
        return;
    }
    buf_drop(&ch->out, (size_t)n);
    if (!ch->out.len)
        uv_poll_stop(p);
}

/* Between fork and exec: only what is safe after a fork of a program with threads. */
static void child(char *const *argv, const int fd[PIPES], pid_t parent)
{
    sigset_t none;
    int sig;

    setsid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    if (dup2(fd[IN], 0) < 0 || dup2(fd[OUT], 1) < 0 || dup2(fd[ERR_OUT], 2) < 0)
        _exit(126);
    for (sig = 1; sig < 32; sig++)
        signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[0], argv);
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* in: what the child reads instead of a pipe, -1: a pipe. */
static int make_pipes(int in, int ours[PIPES], int theirs[PIPES], struct err *err)
{
    int i, fd[2], saved;

    for (i = 0; i < PIPES; i++) {
        if (i == IN && in >= 0) {
            fd[0] = fcntl(in, F_DUPFD_CLOEXEC, PIPES);
            fd[1] = -1;
        }
        if (i == IN && in >= 0 ? fd[0] < 0 : pipe2(fd, O_CLOEXEC)) {
            saved = errno;
            while (i-- > 0) {
                close(ours[i]);
                close(theirs[i]);
            }
            errno = saved;
            return err_set(err, ERR_JOB, "cannot make a pipe: %m");
        }
        ours[i] = i == IN ? fd[1] : fd[0];
        theirs[i] = i == IN ? fd[0] : fd[1];
        if (ours[i] >= 0)
            fcntl(ours[i], F_SETFL, O_NONBLOCK);
        /* a pipe end at 0..2 would be overwritten by dup2 in the child */
        if (theirs[i] < PIPES) {
            int up = fcntl(theirs[i], F_DUPFD_CLOEXEC, PIPES);

            close(theirs[i]);
            theirs[i] = up;
        }
    }
    return 0;
}

static void watch(struct pipechan *ch)
{
    int i;

    ch->handles = 3;
    for (i = 0; i < PIPES; i++) {
        if (ch->fd[i] < 0)
            continue;
        ch->handles++;
        uv_poll_init(ch->loop, &ch->pipe[i], ch->fd[i]);
        ch->pipe[i].data = ch;
        ch->open[i] = 1;
        if (i != IN)
            uv_poll_start(&ch->pipe[i], UV_READABLE, on_readable);
    }
    uv_poll_init(ch->loop, &ch->proc, ch->pidfd);
    ch->proc.data = ch;
    ch->proc_open = 1;
    uv_poll_start(&ch->proc, UV_READABLE, on_child);
    uv_timer_init(ch->loop, &ch->timer);
    ch->timer.data = ch;
    uv_idle_init(ch->loop, &ch->later);
    ch->later.data = ch;
}

int pipechan_open(struct pipechan **out, uv_loop_t *loop, char *const *argv, int in, const char *what,
                  const struct channel_events *events, void *ctx, struct err *err)
{
    struct pipechan *ch = xcalloc(1, sizeof *ch);
    pid_t parent = getpid();
    int theirs[PIPES], i, saved;

    *out = NULL;
    if (make_pipes(in, ch->fd, theirs, err)) {
        free(ch);
        return -1;
    }
    ch->pid = fork();
    saved = errno;
    if (ch->pid == 0)
        child(argv, theirs, parent);
    for (i = 0; i < PIPES; i++)
        close(theirs[i]);
    errno = saved;
    if (ch->pid < 0)
        err_set(err, ERR_JOB, "cannot start %s: %m", what);
    else if ((ch->pidfd = (int)syscall(SYS_pidfd_open, ch->pid, 0)) < 0) {
        err_set(err, ERR_JOB,
                errno == ENOSYS ? "cannot watch %s: this needs Linux 5.3 or later" : "cannot watch %s: %m", what);
        kill(ch->pid, SIGKILL);
        waitpid(ch->pid, NULL, 0);
    } else {
        ch->loop = loop;
        ch->what = xstrdup(what);
        ch->events = *events;
        ch->ctx = ctx;
        watch(ch);
        *out = ch;
        return 0;
    }
    for (i = 0; i < PIPES; i++)
        if (ch->fd[i] >= 0)
            close(ch->fd[i]);
    free(ch);
    return -1;
}

int pipechan_status(const struct pipechan *ch)
{
    return !ch->reaped                ? -1
           : WIFEXITED(ch->status) ? WEXITSTATUS(ch->status)
                                   : 128 + WTERMSIG(ch->status);
}

const char *pipechan_said(const struct pipechan *ch)
{
    return ch->said.tail.len ? buf_str(&ch->said.tail) : buf_str(&ch->magic.noise);
}

int pipechan_send(struct pipechan *ch, const void *data, size_t n)
{
    if (!ch->open[IN])
        return -1;
    buf_add(&ch->out, data, n);
    uv_poll_start(&ch->pipe[IN], UV_WRITABLE, on_writable);
    return 0;
}

void pipechan_shut(struct pipechan *ch)
{
    ch->shut = 1;
    close_pipe(ch, IN);
    if (!ch->reaped && !ch->magic.found)
        kill(-ch->pid, SIGTERM); /* what has not come to reading its stdin will not see it end */
    if (!ch->reaped && !uv_is_closing((uv_handle_t *)&ch->timer))
        uv_timer_start(&ch->timer, timer_fired, END_WAIT_MS, 0);
}

void pipechan_close(struct pipechan *ch)
{
    if (!ch)
        return;
    ch->closing = 1;
    uv_idle_stop(&ch->later);
    close_pipe(ch, IN);
    close_pipe(ch, OUT);
    close_pipe(ch, ERR_OUT);
    settle(ch);
}
