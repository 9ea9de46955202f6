/* Work beside the loop: see aside.h. Invariant: the thread and the handle each hold the memory; the last one frees. */
#include "launcher/aside.h"

#include "engine/base/buf.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct aside {
    struct aside_work w;
    void *arg;
    pthread_mutex_t mutex;
    int holders, left; /* left: the loop is no more told */
    uv_async_t async;
};

static void release(struct aside *a)
{
    int last;

    pthread_mutex_lock(&a->mutex);
    last = !--a->holders;
    pthread_mutex_unlock(&a->mutex);
    if (!last)
        return;
    a->w.free(a->arg);
    pthread_mutex_destroy(&a->mutex);
    free(a);
}

static void *run(void *arg)
{
    struct aside *a = arg;

    a->w.work(a->arg);
    pthread_mutex_lock(&a->mutex);
    if (!a->left)
        uv_async_send(&a->async);
    pthread_mutex_unlock(&a->mutex);
    release(a);
    return NULL;
}

static void closed(uv_handle_t *h)
{
    release(h->data);
}

void aside_leave(struct aside *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->mutex);
    a->left = 1;
    pthread_mutex_unlock(&a->mutex);
    uv_close((uv_handle_t *)&a->async, closed);
}

static void on_async(uv_async_t *h)
{
    struct aside *a = h->data;

    a->w.done(a->arg);
    aside_leave(a);
}

struct aside *aside_run(uv_loop_t *loop, const struct aside_work *w, void *arg)
{
    struct aside *a = xcalloc(1, sizeof *a);
    pthread_t thread;
    sigset_t all, old;

    a->w = *w;
    a->arg = arg;
    a->holders = 2;
    pthread_mutex_init(&a->mutex, NULL);
    uv_async_init(loop, &a->async, on_async);
    a->async.data = a;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&thread, NULL, run, a) == 0)
        pthread_detach(thread);
    else
        run(a); /* no thread to be had: the loop waits */
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return a;
}
