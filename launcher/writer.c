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
#include <time.h>
#include <unistd.h>

#define FILES_OPEN 256 /* more files than this are opened for each write */

struct sink {
    struct sink *next;
    int fd;        /* -1: not open */
    char *path;    /* NULL: a descriptor */
    int broken;
    int mid_line;  /* the last byte written was no newline */
};

struct chunk {
    struct chunk *next;
    struct sink *sink; /* NULL: a new live line */
    int node;
    size_t tag, n; /* tag: bytes to report; of a live line its descriptor */
    char data[];
};

struct writer {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t more, idle;
    struct chunk *head, **tail;
    struct sink *sinks;
    int nodes, stop, busy, pipe_broke;
    size_t pending, *done; /* [nodes] */
    int files;             /* open, thread only */
    char *status;          /* the live line on the screen, thread only */
    int status_fd;         /* thread only */
    uv_async_t async;
    struct writer_events events;
    void *ctx;
};

static int write_all(int fd, const char *data, size_t n)
{
    int fault;

    if (n && fault_hit("logwrite", &fault)) {
        errno = fault;
        return -1;
    }
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
        s->broken = errno;
        pthread_mutex_lock(&w->mutex);
        w->pipe_broke = s->fd;
        pthread_mutex_unlock(&w->mutex);
    }
    s->mid_line = data[n - 1] != '\n';
    if (!s->mid_line)
        draw_status(w);
}

static void write_file(struct writer *w, struct sink *s, const char *data, size_t n)
{
    int keep = s->fd >= 0 || w->files < FILES_OPEN;

    if (s->broken)
        return;
    if (s->fd < 0) {
        s->fd = open(s->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        w->files += s->fd >= 0;
    }
    if (s->fd < 0 || write_all(s->fd, data, n)) {
        s->broken = errno;
        log_warn("cannot write %s: %m; its further lines are dropped, the job goes on", s->path);
        keep = 0;
    }
    if (s->fd >= 0 && !keep) {
        close(s->fd);
        s->fd = -1;
        w->files--;
    }
}

static void write_chunk(struct writer *w, struct chunk *c)
{
    if (!c->sink) {
        erase_status(w);
        free(w->status);
        w->status = xstrndup(c->data, c->n);
        w->status_fd = (int)c->tag;
        draw_status(w);
    } else if (c->sink->path) {
        write_file(w, c->sink, c->data, c->n);
    } else {
        write_terminal(w, c->sink, c->data, c->n);
    }
}

static void *run(void *arg)
{
    struct writer *w = arg;
    struct chunk *c;

    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!w->head && !w->stop)
            pthread_cond_wait(&w->more, &w->mutex);
        if (!w->head)
            break;
        c = w->head;
        w->head = c->next;
        if (!w->head)
            w->tail = &w->head;
        w->busy = 1;
        pthread_mutex_unlock(&w->mutex);
        write_chunk(w, c);
        pthread_mutex_lock(&w->mutex);
        w->busy = 0;
        w->pending -= c->n;
        if (c->node >= 0)
            w->done[c->node] += c->tag;
        free(c);
        uv_async_send(&w->async);
        if (!w->head)
            pthread_cond_broadcast(&w->idle);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static void on_async(uv_async_t *a)
{
    struct writer *w = a->data;
    int m, broke;

    for (m = 0; m < w->nodes; m++) {
        size_t bytes;

        pthread_mutex_lock(&w->mutex);
        bytes = w->done[m];
        w->done[m] = 0;
        pthread_mutex_unlock(&w->mutex);
        if (bytes)
            w->events.done(w->ctx, m, bytes);
    }
    pthread_mutex_lock(&w->mutex);
    broke = w->pipe_broke;
    w->pipe_broke = -1;
    pthread_mutex_unlock(&w->mutex);
    if (broke >= 0)
        w->events.broken(w->ctx, broke);
}

struct writer *writer_create(uv_loop_t *loop, int nodes, const struct writer_events *events, void *ctx)
{
    struct writer *w = xcalloc(1, sizeof *w);
    pthread_condattr_t attr;
    sigset_t all, old;

    w->nodes = nodes;
    w->done = xcalloc((size_t)nodes, sizeof *w->done);
    w->tail = &w->head;
    w->pipe_broke = -1;
    w->events = *events;
    w->ctx = ctx;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->more, &attr);
    pthread_cond_init(&w->idle, &attr);
    pthread_condattr_destroy(&attr);
    uv_async_init(loop, &w->async, on_async);
    w->async.data = w;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&w->thread, NULL, run, w))
        abort();
    pthread_sigmask(SIG_SETMASK, &old, NULL);
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

void writer_put(struct writer *w, struct sink *s, const void *data, size_t n, int node,
                size_t tag_bytes)
{
    struct chunk *c = xmalloc(sizeof *c + n);

    *c = (struct chunk){.sink = s, .node = node, .tag = tag_bytes, .n = n};
    if (n)
        memcpy(c->data, data, n);
    queue(w, c);
}

void writer_status(struct writer *w, int fd, const char *text)
{
    struct chunk *c = xmalloc(sizeof *c + strlen(text));

    *c = (struct chunk){.node = -1, .tag = (size_t)fd, .n = strlen(text)};
    memcpy(c->data, text, c->n);
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
    struct writer *w = h->data;
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
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->more);
    pthread_cond_destroy(&w->idle);
    free(w);
}

void writer_destroy(struct writer *w)
{
    int stuck;

    if (!w)
        return;
    stuck = writer_flush(w, 0);
    pthread_mutex_lock(&w->mutex);
    w->stop = 1;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->mutex);
    if (stuck) {
        pthread_detach(w->thread);
        uv_unref((uv_handle_t *)&w->async);
        return;
    }
    pthread_join(w->thread, NULL);
    uv_close((uv_handle_t *)&w->async, freed);
}
