/* The writing thread: see writer.h.
 *
 * Invariants: the queue and the counters are under the mutex; sinks are made by the loop before they are used
 * and touched by the thread only (but for the list they hang in); the thread holds no lock while it writes. */
#include "launcher/writer.h"

#include "engine/base/buf.h"
#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "engine/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define JOIN_BYTES 16384 /* small pieces are joined up to this */
#define FILES_OPEN 256 /* more files than this are opened for each write */

enum { LEFT = 1, LEFT_CLOSED };

struct sink {
    struct sink *next;
    int fd;        /* -1: not open */
    char *path;    /* NULL: a descriptor */
    int begun;     /* the file was open before */
    int broken;    /* errno of the write that failed; of a descriptor under the mutex */
    int told;      /* that it is, loop only */
    int mid_line;  /* the last byte written was no newline */
};

struct chunk {
    struct chunk *next;
    struct sink *sink; /* NULL: a new live line */
    int node, ends; /* ends: no bytes, the file is closed */
    size_t tag, n; /* tag: bytes to report; of a live line its descriptor */
    char *data;    /* owned, or behind the struct */
    char room[];
};

struct writer {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t more, idle;
    struct chunk *head, **tail;
    struct sink *sinks;
    int nodes, stop, busy;
    int broke;             /* a descriptor sink did, and the loop does not know */
    int left;              /* nobody waits for the thread: the loop is not told, and the last of both frees */
    int over;              /* the thread has ended */
    struct chunk *taken;   /* the thread's part of the queue */
    size_t pending, *done; /* [nodes] */
    int *dirty, ndirty;    /* [nodes] those with something done */
    struct {
        int node;
        size_t bytes;
    } *told; /* [nodes] loop only */
    int files;             /* open, thread only */
    int said;              /* the last failure that was told, thread only */
    char *status;          /* the live line on the screen, thread only */
    int status_fd;         /* thread only */
    uv_async_t async;
    struct writer_events events;
    void *ctx;
};

static int write_all(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t rc = write(fd, data, n);

        if (rc < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};

            poll(&p, 1, -1);
            continue;
        }
        if (rc < 0 && errno == EINTR)
            continue;
        if (rc < 0)
            return -1;
        data += rc;
        n -= (size_t)rc;
    }
    return 0;
}

static void erase_status(struct writer *w)
{
    if (w->status && *w->status)
        write_all(w->status_fd, "\r\033[K", 4);
}

static void draw_status(struct writer *w)
{
    if (w->status && *w->status)
        write_all(w->status_fd, w->status, strlen(w->status));
}

static void write_terminal(struct writer *w, struct sink *s, const char *data, size_t n)
{
    if (s->broken || !n)
        return;
    if (!s->mid_line)
        erase_status(w);
    if (write_all(s->fd, data, n)) {
        int error = errno;

        pthread_mutex_lock(&w->mutex);
        s->broken = error;
        w->broke = 1;
        pthread_mutex_unlock(&w->mutex);
    }
    s->mid_line = data[n - 1] != '\n';
    if (!s->mid_line)
        draw_status(w);
}

static void close_file(struct writer *w, struct sink *s)
{
    if (s->fd < 0)
        return;
    close(s->fd);
    s->fd = -1;
    w->files--;
}

/* With the folders above it where they are missing, its user's alone. */
static int open_path(const char *path)
{
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, fd = open(path, flags, 0600);
    char *folder, *slash;

    if (fd >= 0 || errno != ENOENT)
        return fd;
    folder = xstrdup(path);
    for (slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(folder, 0700);
        *slash = '/';
    }
    free(folder);
    return open(path, flags, 0600);
}

/* Did an earlier run leave the file with half a line, as where its disk was full? */
static int ends_in_a_line(const char *path)
{
    struct stat st;
    char last = '\n';
    int fd = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0)
        return 0;
    if (st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) != 1)
        last = '\n';
    close(fd);
    return last != '\n';
}

static int open_file(struct sink *s)
{
    int fd = open_path(s->path);

    if (fd >= 0 && !s->begun && ends_in_a_line(s->path))
        write_all(fd, "\n", 1);
    s->begun = 1;
    return fd;
}

static void write_file(struct writer *w, struct sink *s, const char *data, size_t n)
{
    int keep = s->fd >= 0 || w->files < FILES_OPEN, fault = 0, failed;

    if (s->broken)
        return;
    if (s->fd < 0) {
        s->fd = open_file(s);
        w->files += s->fd >= 0;
    }
    failed = s->fd < 0 || fault_hit("logwrite", &fault) || write_all(s->fd, data, n);
    if (failed) {
        s->broken = fault ? fault : errno;
        if (s->broken != w->said) /* once for a disk that is full, not for each of many files */
            log_warn("cannot write %s: %s; its further lines are dropped, and those of other files with the same "
                     "trouble; the job goes on", s->path, strerror(s->broken));
        w->said = s->broken;
        keep = 0;
    }
    if (!keep)
        close_file(w, s);
}

static void new_status(struct writer *w, const struct chunk *c)
{
    erase_status(w);
    free(w->status);
    w->status = xstrndup(c->data, c->n);
    w->status_fd = (int)c->tag;
    draw_status(w);
}

static void write_to(struct writer *w, struct sink *s, const char *data, size_t n)
{
    if (s->path)
        write_file(w, s, data, n);
    else
        write_terminal(w, s, data, n);
}

/* The chunks of one descriptor from c on, in one write where that saves calls. Returns the first behind them. */
static struct chunk *write_some(struct writer *w, struct chunk *c)
{
    struct chunk *end;
    size_t n = 0;

    if (!c->sink) {
        new_status(w, c);
        return c->next;
    }
    if (c->ends) {
        close_file(w, c->sink);
        return c->next;
    }
    for (end = c->next; end && end->sink == c->sink && !end->ends && n + c->n + end->n <= JOIN_BYTES; end = end->next)
        n += end->n;
    if (!n) {
        write_to(w, c->sink, c->data, c->n);
    } else {
        struct buf all = BUF_INIT;
        struct sink *s = c->sink;

        buf_reserve(&all, n + c->n);
        for (; c != end; c = c->next)
            buf_add(&all, c->data, c->n);
        write_to(w, s, all.data, all.len);
        buf_clear(&all);
    }
    return end;
}

static void chunk_free(struct chunk *c)
{
    if (c->data != c->room)
        free(c->data);
    free(c);
}

/* With the mutex held: these are written. */
static void count_done(struct writer *w, struct chunk *end)
{
    while (w->taken != end) {
        struct chunk *c = w->taken;

        w->taken = c->next;
        w->pending -= c->n;
        if (c->node >= 0 && c->tag) {
            if (!w->done[c->node])
                w->dirty[w->ndirty++] = c->node;
            w->done[c->node] += c->tag;
        }
        chunk_free(c);
    }
}

static void writer_free(struct writer *w)
{
    struct sink *s;

    while ((s = w->sinks)) {
        w->sinks = s->next;
        if (s->path && s->fd >= 0)
            close(s->fd);
        free(s->path);
        free(s);
    }
    free(w->status);
    free(w->done);
    free(w->dirty);
    free(w->told);
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->more);
    pthread_cond_destroy(&w->idle);
    free(w);
}

static void *run(void *arg)
{
    struct writer *w = arg;
    struct chunk *end;
    int last;

    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!w->head && !w->stop)
            pthread_cond_wait(&w->more, &w->mutex);
        if (!w->head)
            break;
        w->taken = w->head;
        w->head = NULL;
        w->tail = &w->head;
        w->busy = 1;
        while (w->taken) {
            pthread_mutex_unlock(&w->mutex);
            end = write_some(w, w->taken);
            pthread_mutex_lock(&w->mutex);
            count_done(w, end);
            if ((w->ndirty || w->broke) && !w->left)
                uv_async_send(&w->async);
        }
        w->busy = 0;
        if (!w->head)
            pthread_cond_broadcast(&w->idle);
    }
    last = w->left == LEFT_CLOSED;
    w->over = 1;
    pthread_mutex_unlock(&w->mutex);
    if (last)
        writer_free(w);
    return NULL;
}

/* Tells which descriptors broke. */
static void tell_broken(struct writer *w)
{
    struct sink *s;

    for (s = w->sinks; s; s = s->next) {
        int error;

        if (s->path || s->told)
            continue;
        pthread_mutex_lock(&w->mutex);
        error = s->broken;
        pthread_mutex_unlock(&w->mutex);
        s->told = error;
        if (error)
            w->events.broken(w->ctx, s->fd, error);
    }
}

static void on_async(uv_async_t *a)
{
    struct writer *w = a->data;
    int broke, i, n;

    pthread_mutex_lock(&w->mutex);
    n = w->ndirty;
    for (i = 0; i < n; i++) { /* nodes with something done, and how much: out of the thread's way */
        w->told[i].node = w->dirty[i];
        w->told[i].bytes = w->done[w->dirty[i]];
        w->done[w->dirty[i]] = 0;
    }
    w->ndirty = 0;
    broke = w->broke;
    w->broke = 0;
    pthread_mutex_unlock(&w->mutex);
    for (i = 0; i < n; i++)
        w->events.done(w->ctx, w->told[i].node, w->told[i].bytes);
    if (broke)
        tell_broken(w);
}

struct writer *writer_create(uv_loop_t *loop, int nodes, const struct writer_events *events, void *ctx,
                             struct err *err)
{
    struct writer *w = xcalloc(1, sizeof *w);
    pthread_condattr_t attr;
    sigset_t all, old;
    int error;

    w->nodes = nodes;
    w->done = xcalloc((size_t)nodes, sizeof *w->done);
    w->dirty = xcalloc((size_t)nodes, sizeof *w->dirty);
    w->told = xcalloc((size_t)nodes, sizeof *w->told);
    w->tail = &w->head;
    w->events = *events;
    w->ctx = ctx;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->more, &attr);
    pthread_cond_init(&w->idle, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&w->thread, NULL, run, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) {
        err_set(err, ERR_JOB, "cannot start a thread that writes output: %s; is there memory left, and does "
                "'ulimit -u' allow more?", strerror(error));
        writer_free(w);
        return NULL;
    }
    uv_async_init(loop, &w->async, on_async);
    w->async.data = w;
    return w;
}

static struct sink *add_sink(struct writer *w, int fd, const char *path)
{
    struct sink *s = xcalloc(1, sizeof *s);

    s->fd = fd;
    s->path = path ? xstrdup(path) : NULL;
    s->next = w->sinks;
    w->sinks = s;
    return s;
}

struct sink *writer_fd(struct writer *w, int fd)
{
    return add_sink(w, fd, NULL);
}

struct sink *writer_file(struct writer *w, const char *path)
{
    return add_sink(w, -1, path);
}

static void queue(struct writer *w, struct chunk *c)
{
    pthread_mutex_lock(&w->mutex);
    *w->tail = c;
    w->tail = &c->next;
    w->pending += c->n;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->mutex);
}

static struct chunk *chunk_new(const void *data, size_t n)
{
    struct chunk *c = xmalloc(sizeof *c + n);

    *c = (struct chunk){.n = n};
    c->data = c->room;
    if (n)
        memcpy(c->data, data, n);
    return c;
}

void writer_put(struct writer *w, struct sink *s, const void *data, size_t n, int node,
                size_t tag_bytes)
{
    struct chunk *c = chunk_new(data, n);

    c->sink = s;
    c->node = node;
    c->tag = tag_bytes;
    queue(w, c);
}

void writer_give(struct writer *w, struct sink *s, struct buf *b, int node, size_t tag_bytes)
{
    struct chunk *c = chunk_new(NULL, 0);

    c->n = b->len;
    c->data = buf_detach(b);
    c->sink = s;
    c->node = node;
    c->tag = tag_bytes;
    queue(w, c);
}

void writer_file_ends(struct writer *w, struct sink *s)
{
    struct chunk *c = chunk_new(NULL, 0);

    c->sink = s;
    c->node = -1;
    c->ends = 1;
    queue(w, c);
}

void writer_status(struct writer *w, int fd, const char *text)
{
    struct chunk *c = chunk_new(text, strlen(text));

    c->node = -1;
    c->tag = (size_t)fd;
    queue(w, c);
}

size_t writer_pending(struct writer *w)
{
    size_t n;

    pthread_mutex_lock(&w->mutex);
    n = w->pending + (size_t)(w->busy || w->head);
    pthread_mutex_unlock(&w->mutex);
    return n;
}

int writer_error(struct writer *w)
{
    struct sink *s;
    int error = 0;

    pthread_mutex_lock(&w->mutex);
    for (s = w->sinks; s; s = s->next)
        if (!s->path && s->broken && s->broken != EPIPE)
            error = s->broken;
    pthread_mutex_unlock(&w->mutex);
    return error;
}

int writer_flush(struct writer *w, int64_t timeout_ms)
{
    int64_t until = clock_ms() + timeout_ms;
    struct timespec ts = {until / 1000, until % 1000 * 1000000};
    int rc = 0;

    pthread_mutex_lock(&w->mutex);
    while ((w->head || w->busy) && !rc)
        rc = timeout_ms < 0 ? pthread_cond_wait(&w->idle, &w->mutex)
                            : pthread_cond_timedwait(&w->idle, &w->mutex, &ts);
    rc = w->head || w->busy ? -1 : 0;
    pthread_mutex_unlock(&w->mutex);
    return rc;
}

static void freed(uv_handle_t *h)
{
    writer_free(h->data);
}

static void left(uv_handle_t *h)
{
    struct writer *w = h->data;
    int over;

    pthread_mutex_lock(&w->mutex);
    over = w->over;
    w->left = LEFT_CLOSED;
    pthread_mutex_unlock(&w->mutex);
    if (over)
        writer_free(w);
}

void writer_destroy(struct writer *w)
{
    int stuck;

    if (!w)
        return;
    stuck = writer_flush(w, 0);
    pthread_mutex_lock(&w->mutex);
    w->stop = 1;
    w->left = stuck ? LEFT : 0;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->mutex);
    if (stuck)
        pthread_detach(w->thread);
    else
        pthread_join(w->thread, NULL);
    uv_close((uv_handle_t *)&w->async, stuck ? left : freed);
}
