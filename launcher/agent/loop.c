/* The agent's event loop: see loop.h. The only file of the agent that knows libuv. Invariant: a
 * watch or ticker that was destroyed makes no call, its memory goes when libuv has let go of it. */
#include "launcher/agent/loop.h"
#include "engine/base/buf.h"

#include <stdlib.h>
#include <uv.h>

#define MAX_SIGNALS 8

struct caught {
    uv_signal_t uv;
    void (*cb)(void *ctx, int signo);
    void *ctx;
};

struct loop {
    uv_loop_t uv;
    struct caught caught[MAX_SIGNALS];
    int ncaught;
};

struct watch {
    uv_poll_t uv;
    void (*cb)(void *ctx, int events);
    void *ctx;
    int events;
};

struct ticker {
    uv_timer_t uv;
    void (*cb)(void *ctx);
    void *ctx;
};

struct loop *loop_create(void)
{
    struct loop *l = xcalloc(1, sizeof *l);

    if (uv_loop_init(&l->uv)) {
        free(l);
        return NULL;
    }
    return l;
}

void loop_destroy(struct loop *l)
{
    if (!l)
        return;
    for (int i = 0; i < l->ncaught; i++)
        uv_close((uv_handle_t *)&l->caught[i].uv, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT); /* the closing calls */
    uv_loop_close(&l->uv);
    free(l);
}

void loop_run(struct loop *l)
{
    uv_run(&l->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *l)
{
    uv_stop(&l->uv);
}

static void on_poll(uv_poll_t *uv, int status, int events)
{
    struct watch *w = uv->data;
    int seen = (events & UV_READABLE ? LOOP_READ : 0) | (events & UV_WRITABLE ? LOOP_WRITE : 0);

    /* an error shows itself to whoever reads or writes */
    w->cb(w->ctx, status < 0 ? w->events : seen);
}

struct watch *watch_create(struct loop *l, int fd, void (*cb)(void *ctx, int events), void *ctx,
                           struct err *err)
{
    struct watch *w = xcalloc(1, sizeof *w);
    int rc = uv_poll_init(&l->uv, &w->uv, fd);

    if (rc) {
        err_set(err, ERR_NODE, "descriptor %d cannot be watched: %s", fd, uv_strerror(rc));
        free(w);
        return NULL;
    }
    w->uv.data = w;
    w->cb = cb;
    w->ctx = ctx;
    return w;
}

void watch_set(struct watch *w, int events)
{
    if (w->events == events)
        return;
    w->events = events;
    if (events)
        uv_poll_start(&w->uv,
                      (events & LOOP_READ ? UV_READABLE : 0) |
                          (events & LOOP_WRITE ? UV_WRITABLE : 0),
                      on_poll);
    else
        uv_poll_stop(&w->uv);
}

static void free_data(uv_handle_t *h)
{
    free(h->data);
}

void watch_destroy(struct watch *w)
{
    if (w)
        uv_close((uv_handle_t *)&w->uv, free_data);
}

static void on_timer(uv_timer_t *uv)
{
    struct ticker *t = uv->data;

    t->cb(t->ctx);
}

struct ticker *ticker_create(struct loop *l, void (*cb)(void *ctx), void *ctx)
{
    struct ticker *t = xcalloc(1, sizeof *t);

    uv_timer_init(&l->uv, &t->uv);
    t->uv.data = t;
    t->cb = cb;
    t->ctx = ctx;
    return t;
}

void ticker_set(struct ticker *t, int64_t after_ms, int64_t every_ms)
{
    uv_update_time(t->uv.loop);
    uv_timer_start(&t->uv, on_timer, (uint64_t)after_ms, (uint64_t)every_ms);
}

void ticker_stop(struct ticker *t)
{
    uv_timer_stop(&t->uv);
}

void ticker_destroy(struct ticker *t)
{
    if (t)
        uv_close((uv_handle_t *)&t->uv, free_data);
}

static void on_signal(uv_signal_t *uv, int signo)
{
    struct caught *c = uv->data;

    c->cb(c->ctx, signo);
}

int loop_signal(struct loop *l, int signo, void (*cb)(void *ctx, int signo), void *ctx,
                struct err *err)
{
    struct caught *c = &l->caught[l->ncaught];
    int rc;

    if (l->ncaught == MAX_SIGNALS)
        return err_set(err, ERR_JOB_INTERNAL, "too many signals");
    uv_signal_init(&l->uv, &c->uv);
    c->uv.data = c;
    c->cb = cb;
    c->ctx = ctx;
    l->ncaught++;
    rc = uv_signal_start(&c->uv, on_signal, signo);
    return rc ? err_set(err, ERR_NODE, "signal %d: %s", signo, uv_strerror(rc)) : 0;
}
