/* The control socket: see control.h.
 *
 * The socket gets its final name only when it listens: so one that refuses is a dead job's, and whoever sees it
 * may remove it. Nothing here waits in the front end: a peer that stays silent keeps one of a few places until
 * others want it. */
#include "launcher/control.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PEERS 16
#define REQUEST_BYTES 64
#define ANSWER_SECONDS 5
#define OLD_SECONDS 60 /* a socket without its final name is a dead one's after this time */
#define SUFFIX ".sock"

struct peer {
    struct control *control;
    int fd; /* -1: free */
    unsigned order;
    uv_poll_t *poll;
    char request[REQUEST_BYTES];
    size_t n;
};

struct control {
    int fd;
    uv_poll_t *poll;
    char *path;
    unsigned order;
    struct peer peer[PEERS];
    const struct control_events *events;
    void *ctx;
};

static char unlink_path[sizeof((struct sockaddr_un *)0)->sun_path];

/* ---- folders */

/* Ours, a folder, and closed to others. */
static int is_private(const char *path)
{
    struct stat st;

    return !lstat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077);
}

/* The places where a job's socket may be; NULL: there is no such place. A job takes 0 or 1; 2 is where to look when the
 * shell that started it had XDG_RUNTIME_DIR and ours has not. Owned. */
#define FOLDERS 3
static char *folder(int i)
{
    const char *run = getenv("XDG_RUNTIME_DIR");

    if (i == 1)
        return xasprintf("/tmp/ds-launch-%u", (unsigned)geteuid());
    if (i == 2)
        return run ? NULL : xasprintf("/run/user/%u/ds-launch", (unsigned)geteuid());
    return run && *run == '/' && strlen(run) < 64 && is_private(run) ? xasprintf("%s/ds-launch", run) : NULL;
}

static char *open_folder(struct err *err)
{
    int i;

    for (i = 0; i < 2; i++) {
        char *path = folder(i);

        if (path && (!mkdir(path, 0700) || errno == EEXIST) && is_private(path))
            return path;
        if (path && i == 1)
            err_set(err, ERR_JOB, "%s is no folder of this user's own with mode 0700; remove it", path);
        free(path);
    }
    return NULL;
}

static int address_of(struct sockaddr_un *at, const char *path)
{
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at->sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(at->sun_path, path);
    return 0;
}

/* ---- the client's side */

/* A connected socket; -1: errno says why. */
static int reach(const char *path)
{
    struct timeval limit = {ANSWER_SECONDS, 0};
    struct sockaddr_un at;
    int fd, saved;

    if (address_of(&at, path) || (fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (!connect(fd, (struct sockaddr *)&at, sizeof at))
        return fd;
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* 1: answered; 0: a dead job's socket, which is removed; -1: no answer. */
static int ask(const char *path, const char *request, struct buf *answer)
{
    char part[4096];
    ssize_t n;
    int fd = reach(path);

    if (fd < 0 && errno == ECONNREFUSED)
        unlink(path);
    if (fd < 0)
        return errno == ECONNREFUSED || errno == ENOENT ? 0 : -1;
    if (send(fd, request, strlen(request), MSG_NOSIGNAL) < 0) {
        close(fd);
        return -1;
    }
    while ((n = recv(fd, part, sizeof part, 0)) > 0)
        buf_add(answer, part, (size_t)n);
    close(fd);
    return n == 0 && answer->len ? 1 : -1;
}

/* "ID" of "ID.sock"; NULL: another file. Owned. */
static char *id_of(const char *name)
{
    size_t n = strlen(name), k = sizeof SUFFIX - 1;

    return *name != '.' && n > k && !strcmp(name + n - k, SUFFIX) ? xstrndup(name, n - k) : NULL;
}

/* One that was killed between bind and rename. */
static void clean_unborn(const char *path)
{
    struct stat st;

    if (!lstat(path, &st) && S_ISSOCK(st.st_mode) && st.st_ctime + OLD_SECONDS < time(NULL))
        unlink(path);
}

static int list_folder(const char *dir, void (*each)(void *ctx, const char *id, const char *json, size_t n),
                       void *ctx)
{
    DIR *d = is_private(dir) ? opendir(dir) : NULL;
    struct dirent *e;
    int jobs = 0;

    while (d && (e = readdir(d))) {
        char *path = xasprintf("%s/%s", dir, e->d_name), *id = id_of(e->d_name);
        struct buf json = BUF_INIT;

        if (id && each && ask(path, "info\n", &json) > 0) {
            jobs++;
            each(ctx, id, json.data, json.len);
        } else if (id && !each) {
            int fd = reach(path);

            if (fd >= 0)
                close(fd);
            else if (errno == ECONNREFUSED)
                unlink(path);
        } else if (*e->d_name == '.') {
            clean_unborn(path);
        }
        buf_clear(&json);
        free(id);
        free(path);
    }
    if (d)
        closedir(d);
    return jobs;
}

int control_list(void (*each)(void *ctx, const char *id, const char *json, size_t n), void *ctx)
{
    int i, jobs = 0;

    for (i = 0; i < FOLDERS; i++) {
        char *dir = folder(i);

        if (dir)
            jobs += list_folder(dir, each, ctx);
        free(dir);
    }
    return jobs;
}

int control_ask(const char *id, const char *request, struct buf *answer, struct err *err)
{
    int i, rc = *id == '/' ? ask(id, request, answer) : 0;

    for (i = 0; i < FOLDERS && rc == 0 && *id != '/'; i++) {
        char *dir = folder(i), *path = dir ? xasprintf("%s/%s" SUFFIX, dir, id) : NULL;

        if (path && is_private(dir))
            rc = ask(path, request, answer);
        free(path);
        free(dir);
    }
    if (rc < 0)
        return err_set(err, ERR_JOB, "job %s does not answer within %d s", id, ANSWER_SECONDS);
    return rc ? 0 : err_set(err, ERR_INPUT, "no job %s of this user runs on this machine", id);
}

static const struct {
    const char *name;
    int number;
} taken[] = {{"TERM", SIGTERM}, {"INT", SIGINT},   {"HUP", SIGHUP},
             {"KILL", SIGKILL}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}};
#define NTAKEN (sizeof taken / sizeof *taken)

int control_signal(const char *name, struct err *err)
{
    const char *word = strncmp(name, "SIG", 3) ? name : name + 3;
    size_t i;

    for (i = 0; i < NTAKEN; i++)
        if (!strcmp(word, taken[i].name) || atoi(name) == taken[i].number)
            return taken[i].number;
    return err_set(err, ERR_INPUT, "--signal %s: give one of TERM, INT, HUP, KILL, USR1, USR2", name);
}

/* ---- the server's side */

static void poll_closed(uv_handle_t *h)
{
    free(h);
}

static void peer_drop(struct peer *p)
{
    if (p->fd < 0)
        return;
    p->poll->data = NULL;
    uv_close((uv_handle_t *)p->poll, poll_closed);
    close(p->fd);
    p->fd = -1;
}

static int is_taken(int signo)
{
    size_t i;

    for (i = 0; i < NTAKEN; i++)
        if (taken[i].number == signo)
            return 1;
    return 0;
}

/* The signal that was asked for, 0: none. */
static int answer(struct peer *p)
{
    struct control *c = p->control;
    struct buf b = BUF_INIT;
    int signo = 0;

    if (!strcmp(p->request, "info")) {
        c->events->info(c->ctx, &b);
    } else if (sscanf(p->request, "signal %d", &signo) == 1 && is_taken(signo)) {
        buf_addf(&b, "{\"signal\":%d}", signo);
    } else {
        signo = 0;
        buf_adds(&b, "{\"error\":\"this is no request: info, signal N\"}");
    }
    buf_addc(&b, '\n');
    /* what does not fit into the socket's buffer is lost: the peer sees an object that is cut short */
    if (send(p->fd, b.data, b.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        p->n = 0;
    buf_clear(&b);
    return signo;
}

/* The signal comes last: it may be the end of the job, and of the socket with it. */
static void peer_readable(uv_poll_t *poll, int status, int events)
{
    struct peer *p = poll->data;
    struct control *control;
    int signo = 0;
    ssize_t n;
    char *end;

    if (!p)
        return;
    control = p->control;
    n = recv(p->fd, p->request + p->n, sizeof p->request - 1 - p->n, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        p->n += (size_t)n;
        p->request[p->n] = 0;
        end = strchr(p->request, '\n');
        if (!end && p->n < sizeof p->request - 1)
            return;
        if (end) {
            *end = 0;
            signo = answer(p);
        }
    }
    peer_drop(p);
    if (signo)
        control->events->signal(control->ctx, signo);
}

/* A free place, or the one that has been silent for longest. */
static struct peer *place_for(struct control *c)
{
    struct peer *oldest = &c->peer[0];
    int i;

    for (i = 0; i < PEERS; i++) {
        if (c->peer[i].fd < 0)
            return &c->peer[i];
        if ((int)(c->peer[i].order - oldest->order) < 0)
            oldest = &c->peer[i];
    }
    peer_drop(oldest);
    return oldest;
}

static uv_poll_t *watch(uv_loop_t *loop, int fd, uv_poll_cb cb, void *data)
{
    uv_poll_t *p = xcalloc(1, sizeof *p);

    if (uv_poll_init(loop, p, fd)) {
        free(p);
        return NULL;
    }
    p->data = data;
    uv_poll_start(p, UV_READABLE, cb);
    return p;
}

static void connected(uv_poll_t *poll, int status, int events)
{
    struct control *c = poll->data;
    int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred who;
    socklen_t n = sizeof who;
    struct peer *p;

    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) || (who.uid != geteuid() && who.uid != 0)) {
        close(fd);
        return;
    }
    p = place_for(c);
    *p = (struct peer){.control = c, .fd = fd, .order = c->order++};
    p->poll = watch(poll->loop, fd, peer_readable, p);
    if (!p->poll) {
        close(fd);
        p->fd = -1;
    }
}

/* Bound and listening under its final name; -1: errno. */
static int listen_at(const char *path, const char *early)
{
    struct sockaddr_un at;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), saved;

    if (fd >= 0 && !address_of(&at, early) && !bind(fd, (struct sockaddr *)&at, sizeof at) &&
        !listen(fd, PEERS) && !rename(early, path))
        return fd;
    saved = errno;
    if (fd >= 0)
        close(fd);
    unlink(early);
    errno = saved;
    return -1;
}

struct control *control_open(uv_loop_t *loop, const char *id, const struct control_events *events, void *ctx,
                             struct err *err)
{
    struct control *c;
    char *dir = open_folder(err), *early;
    int i;

    if (!dir)
        return NULL;
    list_folder(dir, NULL, NULL);
    c = xcalloc(1, sizeof *c);
    c->events = events;
    c->ctx = ctx;
    c->path = xasprintf("%s/%s" SUFFIX, dir, id);
    early = xasprintf("%s/.%s", dir, id);
    for (i = 0; i < PEERS; i++)
        c->peer[i].fd = -1;
    c->fd = listen_at(c->path, early);
    if (c->fd < 0)
        err_set(err, ERR_JOB, "%s cannot be opened: %m", c->path);
    else
        c->poll = watch(loop, c->fd, connected, c);
    if (c->poll)
        snprintf(unlink_path, sizeof unlink_path, "%s", c->path);
    free(early);
    free(dir);
    if (c->poll)
        return c;
    free(c->path);
    free(c);
    return NULL;
}

const char *control_path(const struct control *c)
{
    return c->path;
}

void control_close(struct control *c)
{
    int i;

    if (!c)
        return;
    for (i = 0; i < PEERS; i++)
        peer_drop(&c->peer[i]);
    uv_close((uv_handle_t *)c->poll, poll_closed);
    unlink(c->path);
    *unlink_path = 0;
    close(c->fd);
    free(c->path);
    free(c);
}

void control_unlink(void)
{
    if (*unlink_path)
        unlink(unlink_path);
}
