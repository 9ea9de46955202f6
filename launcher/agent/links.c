/* The ranks' sockets, the agent's end of engine/base/link.h. Invariants: a rank is answered only
 * what it asked; an answer that its socket does not take now waits in order in its queue, never in
 * the loop; a rank's page stays mapped here to the end of the team, so that it can be read after
 * KILL. */
#include "launcher/agent/agent.h"
#include "engine/base/boot.h"
#include "engine/base/link.h"
#include "launcher/agent/packet.h"
#include "launcher/agent/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_BYTES 4096

struct end {
    struct links *links;
    int index;
    int fd; /* -1: not open or gone */
    struct watch *watch;
    void (*take)(void *ctx, const uint8_t *packet, size_t n); /* a rank in this process; NULL: by fd */
    void *take_ctx;
    struct rank_page *page; /* NULL: not open */
    int page_fd, abort_fd;
    int welcomed;
    struct packet *queue;
    int nqueue, cap;
};

struct links {
    struct team *team;
    struct end *end;
    struct store store;
    int failed;    /* a rank is gone: one that starts after it must not wait for it */
    uint32_t stop; /* the last STOP, for one that starts after it */
};

static void end_close(struct end *e)
{
    if (e->fd < 0)
        return;
    watch_destroy(e->watch);
    e->watch = NULL;
    close(e->fd);
    e->fd = -1;
    for (int i = 0; i < e->nqueue; i++)
        packet_clear(&e->queue[i]);
    free(e->queue);
    e->queue = NULL;
    e->nqueue = e->cap = 0;
}

/* ---- sending */

static void end_flush(struct end *e)
{
    int done = 0;

    while (done < e->nqueue) {
        ssize_t n = packet_send(e->fd, &e->queue[done]);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        packet_clear(&e->queue[done++]); /* sent, or the rank is gone: reading will say so */
    }
    e->nqueue -= done;
    if (e->nqueue)
        memmove(e->queue, e->queue + done, (size_t)e->nqueue * sizeof *e->queue);
    watch_set(e->watch, LOOP_READ | (e->nqueue ? LOOP_WRITE : 0));
}

/* Sends or queues; clears body. fds are duplicated. */
static void end_send(struct end *e, enum link_type type, uint32_t id, struct buf *body,
                     const int *fd, int nfds)
{
    struct buf b = BUF_INIT;
    struct packet p = {.nfds = 0};

    if (e->fd < 0 && !e->take) {
        buf_clear(body);
        return;
    }
    put_u8(&b, (uint8_t)type);
    put_u32(&b, id);
    buf_add(&b, body->data, body->len);
    buf_clear(body);
    if (e->take) {
        e->take(e->take_ctx, (uint8_t *)b.data, b.len);
        buf_clear(&b);
        return;
    }
    for (int i = 0; i < nfds; i++) {
        p.fd[p.nfds] = fcntl(fd[i], F_DUPFD_CLOEXEC, 10);
        if (p.fd[p.nfds] >= 0)
            p.nfds++;
    }
    p.n = b.len;
    p.data = (uint8_t *)buf_detach(&b);
    ARRAY_GROW(e->queue, e->nqueue, e->cap);
    e->queue[e->nqueue++] = p;
    end_flush(e);
}

static void refuse(struct end *e, uint32_t id, const char *why)
{
    struct buf b = BUF_INIT;

    put_str(&b, why);
    end_send(e, LINK_REFUSED, id, &b, NULL, 0);
}

/* ---- answers */

static void answer(struct links *k, const struct entry *x, const struct waiter *w)
{
    struct end *e = &k->end[w->rank];
    struct buf b = BUF_INIT;

    if (x->kind == STORE_VALUE && x->n + 16 > LINK_MAX_BYTES) {
        refuse(e, w->id, "the value is too large for one packet");
    } else if (x->kind == STORE_VALUE) {
        put_bytes(&b, x->value, (uint32_t)x->n);
        end_send(e, LINK_VALUE, w->id, &b, NULL, 0);
    } else if (x->kind == STORE_FD) {
        end_send(e, LINK_FD, w->id, &b, &x->fd, 1);
    } else {
        end_send(e, LINK_FENCED, w->id, &b, NULL, 0);
    }
}

static void answer_all(struct links *k, struct entry *x)
{
    for (int i = 0; i < x->nwaiters; i++)
        answer(k, x, &x->waiter[i]);
    x->nwaiters = 0;
}

static void ask_front(struct links *k, enum msg_type type, struct buf *body)
{
    chan_sendb(k->team->agent->chan, type, k->team->epoch, body);
}

/* ---- what ranks say */

static void on_hello(struct end *e, uint32_t id, struct reader *r)
{
    const struct spawn *s = &e->links->team->spawn;
    char *build = get_str(r);
    struct buf b = BUF_INIT;
    int fds[2] = {e->page_fd, e->abort_fd};

    get_u32(r);
    if (!reader_done(r) || strcmp(build, build_id())) {
        char *why = xasprintf(
            "the program is of build %s, the agent of build %s: install the same package on "
            "both",
            build, build_id());

        refuse(e, id, why);
        free(why);
        free(build);
        return;
    }
    free(build);
    put_u32(&b, (uint32_t)s->rank[e->index].rank);
    put_u32(&b, (uint32_t)s->world);
    put_u32(&b, (uint32_t)e->index);
    put_u32(&b, (uint32_t)s->nranks);
    put_u32(&b, (uint32_t)s->node);
    put_u32(&b, (uint32_t)s->nodes);
    put_u32(&b, e->links->team->epoch);
    buf_add(&b, s->node_runs.data, s->node_runs.len);
    put_bytes(&b, s->key, sizeof s->key);
    put_str(&b, s->address);
    e->welcomed = 1;
    if (b.len + 8 > LINK_MAX_BYTES) {
        buf_clear(&b);
        refuse(e, id, "the world is too large for one packet");
    } else {
        end_send(e, LINK_WELCOME, id, &b, fds, 2);
    }
}

/* A key for one reader is kept by the front end alone, which knows when it was got. */
static void on_put(struct end *e, struct reader *r)
{
    char *key = get_str(r);
    uint32_t n;
    const uint8_t *value = get_bytes(r, &n);
    struct buf b = BUF_INIT;

    if (reader_done(r)) {
        if (!boot_is_once(key)) {
            struct entry *x = store_entry(&e->links->store, STORE_VALUE, key);

            entry_set(x, value, n);
            answer_all(e->links, x);
        }
        put_str(&b, key);
        put_bytes(&b, value, n);
        ask_front(e->links, MSG_PUT, &b);
    }
    free(key);
}

static void on_get(struct end *e, uint32_t id, const char *key)
{
    struct entry *x = store_entry(&e->links->store, STORE_VALUE, key);
    struct waiter w = {e->index, id};
    struct buf b = BUF_INIT;

    if (x->have) {
        answer(e->links, x, &w);
        return;
    }
    entry_wait(x, e->index, id);
    if (x->asked)
        return;
    x->asked = 1;
    put_str(&b, key);
    ask_front(e->links, MSG_GET, &b);
}

/* The front end hears of it once, when all of the node's ranks are there. */
static void on_fence(struct end *e, uint32_t id, const char *name)
{
    struct entry *x = store_entry(&e->links->store, STORE_FENCE, name);
    struct buf b = BUF_INIT;

    if (entry_wait(x, e->index, id)) {
        refuse(e, id, "this rank is at that fence already");
        return;
    }
    if (x->nwaiters < e->links->team->n)
        return;
    x->asked = 1;
    put_str(&b, name);
    put_u32(&b, (uint32_t)x->nwaiters);
    ask_front(e->links, MSG_FENCE, &b);
}

static void on_putfd(struct end *e, const char *key, int fd)
{
    struct entry *x = store_entry(&e->links->store, STORE_FD, key);

    if (x->fd >= 0)
        close(x->fd);
    x->fd = lift_fd(fd);
    x->have = x->fd >= 0;
    if (x->have)
        answer_all(e->links, x);
}

static void on_getfd(struct end *e, uint32_t id, const char *key)
{
    struct entry *x = store_entry(&e->links->store, STORE_FD, key);
    struct waiter w = {e->index, id};

    if (x->have)
        answer(e->links, x, &w);
    else
        entry_wait(x, e->index, id);
}

/* METRIC, EVENT, FAIL, LOST: the rank's number in front of what it said. */
static void forward(struct end *e, enum msg_type type, const void *data, size_t n)
{
    struct buf b = BUF_INIT;

    put_u32(&b, (uint32_t)e->links->team->spawn.rank[e->index].rank);
    buf_add(&b, data, n);
    ask_front(e->links, type, &b);
}

/* FAIL and LOST: only what is whole, for the front end takes a malformed frame for a broken agent. */
static void on_report(struct end *e, enum msg_type type, const struct reader *packet)
{
    struct reader r = *packet;

    get_u32(&r);
    free(get_str(&r));
    if (type == MSG_LOST)
        get_u64(&r);
    if (reader_done(&r))
        forward(e, type, packet->p, (size_t)(packet->end - packet->p));
}

static void on_json(struct end *e, enum msg_type type, struct reader *r)
{
    uint32_t n;
    const uint8_t *json = get_bytes(r, &n);

    if (reader_done(r))
        forward(e, type, json, n);
}

static void on_named(struct end *e, enum link_type type, uint32_t id, struct reader *r, int *fd)
{
    char *name = get_str(r);

    if (!reader_done(r))
        refuse(e, id, "malformed");
    else if (type == LINK_GET)
        on_get(e, id, name);
    else if (type == LINK_FENCE)
        on_fence(e, id, name);
    else if (type == LINK_GETFD)
        on_getfd(e, id, name);
    else if (*fd >= 0) {
        on_putfd(e, name, *fd);
        *fd = -1;
    }
    free(name);
}

static void on_packet(struct end *e, const uint8_t *data, size_t n, int *fd)
{
    struct reader r = reader_of(data, n);
    enum link_type type = (enum link_type)get_u8(&r);
    uint32_t id = get_u32(&r);

    if (r.failed)
        return;
    if (type != LINK_HELLO && !e->welcomed) {
        refuse(e, id, "a rank says hello first");
        return;
    }
    switch (type) {
    case LINK_HELLO:
        on_hello(e, id, &r);
        break;
    case LINK_PUT:
        on_put(e, &r);
        break;
    case LINK_GET:
    case LINK_FENCE:
    case LINK_GETFD:
    case LINK_PUTFD:
        on_named(e, type, id, &r, fd);
        break;
    case LINK_METRIC:
        on_json(e, MSG_METRIC, &r);
        break;
    case LINK_EVENT:
        on_json(e, MSG_EVENT, &r);
        break;
    case LINK_FAIL:
        on_report(e, MSG_FAIL, &r);
        break;
    case LINK_LOST:
        on_report(e, MSG_LOST, &r);
        break;
    default:
        refuse(e, id, "unknown request");
    }
}

/* ---- receiving */

/* 1: a packet was handled, 0: none there, -1: the rank closed its end. */
static int end_receive(struct end *e)
{
    static uint8_t data[LINK_MAX_BYTES];
    size_t n;
    int fd = -1, rc = packet_receive(e->fd, data, sizeof data, &n, &fd);

    if (rc > 0 && n)
        on_packet(e, data, n, &fd);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* At most so many packets, so that ranks take turns. */
static void end_read(struct end *e, int packets)
{
    int rc = 1;

    for (int i = 0; i < packets && rc > 0 && e->fd >= 0; i++)
        rc = end_receive(e);
    if (rc < 0)
        end_close(e);
}

static void on_end(void *ctx, int events)
{
    struct end *e = ctx;

    end_read(e, 32);
    if (e->fd >= 0 && (events & LOOP_WRITE))
        end_flush(e);
}

/* ---- the outside */

struct links *links_create(struct team *t)
{
    struct links *k = xcalloc(1, sizeof *k);

    k->team = t;
    k->end = xcalloc((size_t)t->n, sizeof *k->end);
    for (int i = 0; i < t->n; i++) {
        k->end[i].links = k;
        k->end[i].index = i;
        k->end[i].fd = k->end[i].page_fd = k->end[i].abort_fd = -1;
    }
    entry_set(store_entry(&k->store, STORE_VALUE, "job"), t->spawn.job, t->spawn.job_len);
    return k;
}

void links_destroy(struct links *k)
{
    if (!k)
        return;
    for (int i = 0; i < k->team->n; i++) {
        struct end *e = &k->end[i];

        end_close(e);
        if (e->page)
            munmap(e->page, PAGE_BYTES);
        if (e->page_fd >= 0)
            close(e->page_fd);
        if (e->abort_fd >= 0)
            close(e->abort_fd);
    }
    store_clear(&k->store);
    free(k->end);
    free(k);
}

static int end_memory(struct end *e)
{
    void *page;

    e->page_fd = lift_fd(memfd_create("ds-rank-page", MFD_CLOEXEC));
    e->abort_fd = lift_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (e->page_fd < 0 || e->abort_fd < 0 || ftruncate(e->page_fd, PAGE_BYTES))
        return -1;
    page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, e->page_fd, 0);
    e->page = page == MAP_FAILED ? NULL : page;
    return e->page ? 0 : -1;
}

/* Ends every wait of this rank, whatever it sleeps on. */
static void end_abort(struct end *e)
{
    uint64_t one = 1;
    ssize_t n;

    if (!e->page)
        return;
    __atomic_store_n(&e->page->abort, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &e->page->abort, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    n = write(e->abort_fd, &one, sizeof one);
    (void)n; /* full: it is readable already */
}

int links_open(struct links *k, int index, struct err *err)
{
    struct end *e = &k->end[index];
    int fd[2];

    if (end_memory(e))
        return err_set(err, ERR_NODE, "%s: the page of a rank: %m", k->team->spawn.host);
    e->page->stop = k->stop;
    if (k->failed)
        end_abort(e);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd))
        return err_set(err, ERR_NODE, "%s: the socket of a rank: %m", k->team->spawn.host);
    e->fd = lift_fd(fd[0]);
    e->watch = watch_create(k->team->agent->loop, e->fd, on_end, e, err);
    if (!e->watch) {
        close(fd[1]);
        return -1;
    }
    watch_set(e->watch, LOOP_READ);
    return fd[1];
}

void links_attach(struct links *k, int index,
                  void (*take)(void *ctx, const uint8_t *packet, size_t n), void *ctx)
{
    k->end[index].take = take;
    k->end[index].take_ctx = ctx;
}

void links_packet(struct links *k, int index, const uint8_t *packet, size_t n)
{
    int fd = -1;

    on_packet(&k->end[index], packet, n, &fd);
}

void links_rank_gone(struct links *k, int index, int failed)
{
    if (k->end[index].fd >= 0)
        end_read(&k->end[index], 4096); /* what it said last */
    end_close(&k->end[index]);
    k->end[index].take = NULL;
    k->failed |= failed != 0;
    for (int i = 0; failed && i < k->team->n; i++)
        if (i != index)
            end_abort(&k->end[i]);
}

void links_where(const struct links *k, int index, struct rank_end *e)
{
    const struct rank_page *page = k->end[index].page;
    uint32_t phase = page ? __atomic_load_n(&page->phase, __ATOMIC_RELAXED) : PHASE_START;

    if (!page || phase > PHASE_DONE)
        return;
    e->phase = phase;
    e->step = __atomic_load_n(&page->step, __ATOMIC_RELAXED);
}

void links_stop(struct links *k, uint32_t why)
{
    k->stop = why;
    for (int i = 0; i < k->team->n; i++)
        if (k->end[i].page)
            __atomic_store_n(&k->end[i].page->stop, why, __ATOMIC_RELEASE);
}

void links_value(struct links *k, const char *key, const void *value, size_t n)
{
    struct entry *x = store_entry(&k->store, STORE_VALUE, key);

    if (!x->have)
        entry_set(x, value, n);
    answer_all(k, x);
    if (boot_is_once(key))
        store_forget(&k->store, x);
}

void links_fenced(struct links *k, const char *name)
{
    struct entry *x = store_entry(&k->store, STORE_FENCE, name);

    answer_all(k, x);
    store_forget(&k->store, x);
}
