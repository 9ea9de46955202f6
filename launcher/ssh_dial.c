/* Resolving and connecting: see ssh_dial.h.
 *
 * Invariants: refs counts what the loop still holds (the look-up and every uv handle that is not closed
 * yet); the dial is freed when it reaches zero. After finish() nothing but the closing of handles
 * happens, so done is called at most once. */
#include "launcher/ssh_dial.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NEXT_MS 250 /* RFC 8305, Connection Attempt Delay */
#define MAX_ADDRESSES 16

struct try {
    uv_poll_t poll;
    struct ssh_dial *dial;
    int fd; /* -1: over */
};

struct ssh_dial {
    uv_loop_t *loop;
    uv_getaddrinfo_t lookup;
    uv_timer_t next, limit;
    char *host;
    int port, refs, over, looking;
    int64_t user_timeout_ms;
    struct {
        struct sockaddr_storage addr;
        socklen_t len;
    } address[MAX_ADDRESSES];
    int naddresses, started, failed;
    struct try *try[MAX_ADDRESSES];
    struct err why;
    void (*done)(void *ctx, int fd, const struct err *why);
    void *ctx;
};

static void unref(struct ssh_dial *d)
{
    if (--d->refs)
        return;
    free(d->host);
    free(d);
}

static void on_timer_closed(uv_handle_t *h)
{
    unref(h->data);
}

static void on_try_closed(uv_handle_t *h)
{
    struct try *t = h->data;

    unref(t->dial);
    free(t);
}

/* Ends a try; its socket stays open when keep. Returns the socket. */
static int end_try(struct try *t, int keep)
{
    int fd = t->fd;

    if (fd < 0)
        return -1;
    t->fd = -1;
    uv_close((uv_handle_t *)&t->poll, on_try_closed);
    if (!keep)
        close(fd);
    return fd;
}

static void finish(struct ssh_dial *d)
{
    d->over = 1;
    for (int i = 0; i < d->started; i++)
        if (d->try[i])
            end_try(d->try[i], 0);
    if (d->looking)
        uv_cancel((uv_req_t *)&d->lookup); /* may be running: then its callback sees over */
    uv_close((uv_handle_t *)&d->next, on_timer_closed);
    uv_close((uv_handle_t *)&d->limit, on_timer_closed);
}

static void fail(struct ssh_dial *d)
{
    finish(d);
    d->done(d->ctx, -1, &d->why);
}

static void set_options(int fd, int64_t user_timeout_ms)
{
    int one = 1, idle = 15, interval = 5, count = 3;
    unsigned ms = (unsigned)user_timeout_ms;

    /* each is an improvement, none is a condition */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    if (user_timeout_ms > 0)
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static void describe(struct ssh_dial *d, int i, int error)
{
    char text[INET6_ADDRSTRLEN + 16] = "?";

    getnameinfo((struct sockaddr *)&d->address[i].addr, d->address[i].len, text, sizeof text, NULL, 0,
                NI_NUMERICHOST);
    err_set(&d->why, ERR_NODE, "cannot connect to %s (%s) port %d: %s%s", d->host, text, d->port, strerror(error),
            error == ECONNREFUSED ? " (is sshd running there, at this port? --ssh-port gives another)" : "");
}

static void start_next(struct ssh_dial *d);

static void on_next(uv_timer_t *t)
{
    start_next(t->data);
}

static void on_limit(uv_timer_t *t)
{
    struct ssh_dial *d = t->data;

    if (d->why.code == ERR_OK && !d->naddresses)
        err_set(&d->why, ERR_NODE, "cannot resolve %s: the name service does not answer", d->host);
    else if (d->naddresses)
        describe(d, d->started ? d->started - 1 : 0, ETIMEDOUT);
    fail(d);
}

/* One address is out; the next one starts at once. */
static void try_failed(struct ssh_dial *d, int i, int error)
{
    describe(d, i, error);
    if (++d->failed == d->naddresses)
        fail(d);
    else if (d->started < d->naddresses)
        start_next(d);
}

static void on_connected(uv_poll_t *p, int status, int events)
{
    struct try *t = p->data;
    struct ssh_dial *d = t->dial;
    int error = 0, i = 0;
    socklen_t len = sizeof error;

    if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &error, &len))
        error = errno;
    if (!error) {
        int fd = end_try(t, 1);
        finish(d);
        d->done(d->ctx, fd, NULL);
        return;
    }
    while (d->try[i] != t)
        i++;
    d->try[i] = NULL;
    end_try(t, 0);
    try_failed(d, i, error);
}

static void start_next(struct ssh_dial *d)
{
    int i = d->started++;
    struct sockaddr *sa = (struct sockaddr *)&d->address[i].addr;
    int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd >= 0) {
        set_options(fd, d->user_timeout_ms);
        if (!connect(fd, sa, d->address[i].len) || errno == EINPROGRESS) {
            struct try *t = xcalloc(1, sizeof *t);
            t->dial = d, t->fd = fd;
            uv_poll_init(d->loop, &t->poll, fd);
            t->poll.data = t;
            uv_poll_start(&t->poll, UV_WRITABLE, on_connected);
            d->try[i] = t;
            d->refs++;
            if (d->started < d->naddresses)
                uv_timer_start(&d->next, on_next, NEXT_MS, 0);
            return;
        }
    }
    int error = errno;
    if (fd >= 0)
        close(fd);
    try_failed(d, i, error);
}

/* The resolver's order, but with the families in turn. */
static void sort_addresses(struct ssh_dial *d, const struct addrinfo *list)
{
    const struct addrinfo *a = list, *b = list;
    int first = list->ai_family;

    while ((a || b) && d->naddresses < MAX_ADDRESSES) {
        const struct addrinfo *pick[2];
        while (a && a->ai_family != first)
            a = a->ai_next;
        while (b && b->ai_family == first)
            b = b->ai_next;
        pick[0] = a, pick[1] = b;
        for (int i = 0; i < 2 && d->naddresses < MAX_ADDRESSES; i++)
            if (pick[i]) {
                memcpy(&d->address[d->naddresses].addr, pick[i]->ai_addr, pick[i]->ai_addrlen);
                d->address[d->naddresses++].len = pick[i]->ai_addrlen;
            }
        a = a ? a->ai_next : NULL;
        b = b ? b->ai_next : NULL;
    }
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
    struct ssh_dial *d = req->data;

    d->looking = 0;
    if (!d->over && status) {
        err_set(&d->why, ERR_NODE, "cannot resolve %s: %s", d->host, uv_strerror(status));
        fail(d);
    } else if (!d->over && list) {
        sort_addresses(d, list);
        start_next(d);
    }
    uv_freeaddrinfo(list);
    unref(d);
}

/* An address needs no name service, nor a thread that asks it. */
static int take_numeric(struct ssh_dial *d, const char *service, struct addrinfo hints)
{
    struct addrinfo *list;

    hints.ai_flags |= AI_NUMERICHOST;
    if (getaddrinfo(d->host, service, &hints, &list))
        return 0;
    sort_addresses(d, list);
    freeaddrinfo(list);
    return d->naddresses;
}

struct ssh_dial *ssh_dial_start(uv_loop_t *loop, const char *host, int port, enum ssh_family family,
                                int64_t timeout_ms, int64_t user_timeout_ms,
                                void (*done)(void *ctx, int fd, const struct err *why), void *ctx)
{
    struct ssh_dial *d = xcalloc(1, sizeof *d);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char service[8];

    hints.ai_family = family == SSH_FAMILY_INET ? AF_INET : family == SSH_FAMILY_INET6 ? AF_INET6 : AF_UNSPEC;
    d->loop = loop, d->host = xstrdup(host), d->port = port;
    d->user_timeout_ms = user_timeout_ms;
    d->done = done, d->ctx = ctx;
    d->refs = 3;
    uv_timer_init(loop, &d->next);
    uv_timer_init(loop, &d->limit);
    d->next.data = d->limit.data = d->lookup.data = d;
    uv_timer_start(&d->limit, on_limit, (uint64_t)(timeout_ms > 0 ? timeout_ms : 1), 0);
    snprintf(service, sizeof service, "%d", port);
    d->looking = !take_numeric(d, service, hints);
    if (!d->looking) {
        d->refs--;
        uv_timer_start(&d->next, on_next, 0, 0);
    } else if (uv_getaddrinfo(loop, &d->lookup, on_resolved, host, service, &hints)) {
        d->looking = 0;
        d->refs--; /* the name is too long or the like: said when the loop runs */
        err_set(&d->why, ERR_NODE, "cannot resolve %s: not a host name", host);
        uv_timer_start(&d->limit, on_limit, 0, 0);
    }
    return d;
}

void ssh_dial_stop(struct ssh_dial *d)
{
    if (d && !d->over)
        finish(d);
}
