/* The stdin thread: see stdinpump.h. Invariants: chunk is full from the read until the loop took it, so at
 * most one chunk is under way and nothing piles up; nobody waits for a read without end, see stdin_pump_destroy. */
#include "launcher/stdinpump.h"

#include "engine/base/buf.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_BYTES 65536
#define JOIN_MS 250
#define BACKGROUND_MS 200 /* between looks whether we are in the foreground again */

struct stdin_pump {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int fd, wake;
    size_t window;
    int stop, full, ended, told;
    int over;    /* the thread is at its end */
    int holders; /* of a thread that was not waited for: it and the handle; the last one frees */
    size_t n;
    char chunk[CHUNK_BYTES];
    uv_async_t async;
    void (*take)(void *ctx, const void *data, size_t n);
    void *ctx;
};

/* Waits for something to read: 1; 0: stop. */
static int wait_readable(struct stdin_pump *p)
{
    int tty = isatty(p->fd);

    for (;;) {
        int behind = tty && tcgetpgrp(p->fd) != getpgrp();
        struct pollfd fds[2] = {{.fd = p->wake, .events = POLLIN}, {.fd = p->fd, .events = POLLIN}};
        int rc = poll(fds, behind ? 1 : 2, behind ? BACKGROUND_MS : -1);

        if (rc > 0 && fds[0].revents)
            return 0;
        if (rc > 0 && !behind && fds[1].revents)
            return 1;
    }
}

/* Up to max bytes into the chunk; 0: the end. */
static size_t read_some(struct stdin_pump *p, size_t max)
{
    for (;;) {
        ssize_t n = read(p->fd, p->chunk, max < CHUNK_BYTES ? max : CHUNK_BYTES);

        if (n >= 0)
            return (size_t)n;
        if (errno != EINTR && errno != EAGAIN && !(errno == EIO && isatty(p->fd)))
            return 0;
        if (!wait_readable(p))
            return 0;
    }
}

static void release(struct stdin_pump *p)
{
    close(p->wake);
    free(p);
}

static void *run(void *arg)
{
    struct stdin_pump *p = arg;
    size_t max, n;
    int last;

    pthread_mutex_lock(&p->mutex);
    while (!p->ended) {
        while (!p->stop && (!p->window || p->full))
            pthread_cond_wait(&p->changed, &p->mutex);
        if (p->stop)
            break;
        max = p->window;
        pthread_mutex_unlock(&p->mutex);
        n = wait_readable(p) ? read_some(p, max) : 0;
        pthread_mutex_lock(&p->mutex);
        if (p->stop)
            break;
        p->n = n;
        p->window -= n;
        p->full = n > 0;
        p->ended = n == 0;
        uv_async_send(&p->async);
    }
    p->over = 1;
    last = p->holders && !--p->holders;
    pthread_mutex_unlock(&p->mutex);
    if (last)
        release(p);
    return NULL;
}

static void on_async(uv_async_t *a)
{
    struct stdin_pump *p = a->data;
    int end;

    pthread_mutex_lock(&p->mutex);
    if (p->full) /* the thread does not touch the chunk while it is full */
        p->take(p->ctx, p->chunk, p->n);
    p->full = 0;
    end = p->ended && !p->told;
    p->told |= end;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    if (end)
        p->take(p->ctx, NULL, 0);
}

struct stdin_pump *stdin_pump_create(uv_loop_t *loop, int fd,
                                     void (*take)(void *ctx, const void *data, size_t n), void *ctx,
                                     struct err *err)
{
    struct stdin_pump *p = xcalloc(1, sizeof *p);
    sigset_t all, old;
    int error;

    p->fd = fd;
    p->wake = eventfd(0, EFD_CLOEXEC);
    p->take = take;
    p->ctx = ctx;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&p->thread, NULL, run, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) {
        err_set(err, ERR_JOB, "cannot start a thread that reads standard input: %s; is there memory left, and does "
                "'ulimit -u' allow more?", strerror(error));
        release(p);
        return NULL;
    }
    uv_async_init(loop, &p->async, on_async);
    p->async.data = p;
    return p;
}

void stdin_pump_want(struct stdin_pump *p, size_t bytes)
{
    pthread_mutex_lock(&p->mutex);
    p->window += bytes;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

static void freed(uv_handle_t *h)
{
    release(h->data);
}

static void left(uv_handle_t *h)
{
    struct stdin_pump *p = h->data;
    int last;

    pthread_mutex_lock(&p->mutex);
    last = !--p->holders;
    pthread_mutex_unlock(&p->mutex);
    if (last)
        release(p);
}

/* 1: the thread stands in a read and is left there. Somebody else may read the same pipe or terminal and have been
 * faster: then our read waits for what comes next, which may be nothing. */
static int leave(struct stdin_pump *p)
{
    struct timespec until;
    int over;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += JOIN_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (!pthread_timedjoin_np(p->thread, NULL, &until))
        return 0;
    pthread_mutex_lock(&p->mutex);
    over = p->over;
    p->holders = 2;
    pthread_mutex_unlock(&p->mutex);
    if (over)
        pthread_join(p->thread, NULL);
    else
        pthread_detach(p->thread);
    return !over;
}

void stdin_pump_destroy(struct stdin_pump *p)
{
    uint64_t one = 1;
    ssize_t rc;

    if (!p)
        return;
    pthread_mutex_lock(&p->mutex);
    p->stop = 1;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    rc = write(p->wake, &one, sizeof one);
    (void)rc;
    uv_close((uv_handle_t *)&p->async, leave(p) ? left : freed);
}
