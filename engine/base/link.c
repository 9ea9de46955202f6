/* A rank's end of the socket to its agent: see link.h.
 *
 * One reader thread takes every packet and hands it to the request with its id; it is the only one
 * that receives. Sending is one sendmsg per packet, so it needs no lock. Invariant: list and dead
 * are touched under lock; a request lives on its caller's stack from before its packet is sent
 * until it is off the list. */
#include "engine/base/link.h"
#include "engine/base/build.h"
#include "engine/base/clock.h"
#include "engine/base/parse.h"
#include "engine/base/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WELCOME_MS 60000
#define SEND_MS 30000 /* an agent that takes nothing for so long is stuck */
#define LINK_FDS 2    /* descriptors in one packet */
#define LINK_PAGE 4096

struct request {
    struct request *next;
    uint32_t id;
    int done, type, fd; /* fd: received, owned by the caller; -1 */
    struct buf body;
};

struct link {
    struct boot boot; /* first: callers get &link->boot */
    int fd;
    uint32_t next_id; /* atomic */
    pthread_t reader;
    int have_reader, dead, closing; /* dead: the agent is gone; closing: atomic */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct request *list;
    char *address;
    uint8_t key[32];
};

struct packet {
    uint8_t *data;
    size_t n;
    int fd[LINK_FDS], nfds;
};

static int aborted(const struct link *l)
{
    return l->boot.page && __atomic_load_n(&l->boot.page->abort, __ATOMIC_ACQUIRE) != 0;
}

static void close_fds(struct packet *p)
{
    for (int i = 0; i < p->nfds; i++)
        close(p->fd[i]);
    p->nfds = 0;
}

/* One packet into p (data holds LINK_MAX_BYTES). 1, 0 at the end of the stream, -1 on error. */
static int receive(int fd, struct packet *p)
{
    union {
        char bytes[CMSG_SPACE(LINK_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {p->data, LINK_MAX_BYTES};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    ssize_t n;

    p->n = 0;
    p->nfds = 0;
    n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 1 : -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        p->nfds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(p->fd, CMSG_DATA(c), (size_t)p->nfds * sizeof(int));
    }
    if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        close_fds(p);
        errno = EMSGSIZE;
        return -1;
    }
    p->n = (size_t)n;
    return n > 0;
}

/* Waits until fd can take a packet: 0, or -1 and err. */
static int wait_writable(struct link *l, int64_t deadline_ms, struct err *err)
{
    struct pollfd p[2] = {{l->fd, POLLOUT, 0}, {l->boot.abort_fd, POLLIN, 0}};
    int64_t left = deadline_ms - clock_ms();

    if (left <= 0)
        return err_set(err, ERR_RANK_TIMEOUT,
                       "the agent takes no message of rank %d; its node hangs", l->boot.rank);
    poll(p, 2, left > 1000 ? 1000 : (int)left);
    if (aborted(l))
        return err_set(err, ERR_RANK_ABORT, "rank %d was told to end", l->boot.rank);
    return 0;
}

/* One packet to the agent. fd: sent with it, -1 none. deadline_ms 0: never waits, a full socket is
 * EAGAIN. */
static int send_packet(struct link *l, enum link_type type, uint32_t id, const struct buf *body,
                       int fd, int64_t deadline_ms, struct err *err)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct buf head = BUF_INIT;
    struct iovec iov[2];
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t n;
    int rc = 0;

    if (body->len + 5 > LINK_MAX_BYTES)
        return err_set(err, ERR_JOB_INTERNAL,
                       "a message of %zu bytes to the agent is beyond the limit of %d", body->len,
                       LINK_MAX_BYTES);
    put_u8(&head, (uint8_t)type);
    put_u32(&head, id);
    iov[0] = (struct iovec){head.data, head.len};
    iov[1] = (struct iovec){body->data, body->len};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        m.msg_control = &control;
        m.msg_controllen = sizeof control;
        *CMSG_FIRSTHDR(&m) = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof fd);
    }
    while ((n = sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 && rc == 0) {
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            rc = err_set(err, ERR_RANK, "the agent of rank %d is gone: %m", l->boot.rank);
        else if (!deadline_ms)
            break;
        else
            rc = wait_writable(l, deadline_ms, err);
    }
    buf_clear(&head);
    return rc;
}

/* ---- the reader ---- */

/* The agent is gone: every wait of this rank ends, in collectives too. */
static void agent_gone(struct link *l)
{
    uint64_t one = 1;
    ssize_t done;

    pthread_mutex_lock(&l->lock);
    l->dead = 1;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (__atomic_load_n(&l->closing, __ATOMIC_ACQUIRE))
        return;
    __atomic_store_n(&l->boot.page->abort, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &l->boot.page->abort, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    done = write(l->boot.abort_fd, &one, sizeof one);
    (void)done;
}

static void deliver(struct link *l, struct packet *p)
{
    struct reader r = reader_of(p->data, p->n);
    int type = get_u8(&r);
    uint32_t id = get_u32(&r);

    pthread_mutex_lock(&l->lock);
    for (struct request *q = l->list; q && !r.failed; q = q->next) {
        if (q->id != id || q->done)
            continue;
        q->done = 1;
        q->type = type;
        buf_add(&q->body, r.p, (size_t)(r.end - r.p));
        if (p->nfds) {
            q->fd = p->fd[0];
            p->fd[0] = p->fd[--p->nfds];
        }
        pthread_cond_broadcast(&l->changed);
        break;
    }
    pthread_mutex_unlock(&l->lock);
    close_fds(p); /* an answer nobody waits for any more */
}

static void *reader_main(void *arg)
{
    struct link *l = arg;
    struct packet p = {.data = xmalloc(LINK_MAX_BYTES)};
    struct pollfd set[2] = {{l->fd, POLLIN, 0}, {l->boot.abort_fd, POLLIN, 0}};

    while (!__atomic_load_n(&l->closing, __ATOMIC_ACQUIRE)) {
        if (poll(set, 2, -1) < 0)
            continue;
        if (set[1].fd >= 0 && set[1].revents) {
            set[1].fd = -1; /* stays readable for good: seen once is enough */
            pthread_mutex_lock(&l->lock);
            pthread_cond_broadcast(&l->changed);
            pthread_mutex_unlock(&l->lock);
        }
        if (!set[0].revents)
            continue;
        if (receive(l->fd, &p) <= 0)
            break;
        if (p.n)
            deliver(l, &p);
    }
    agent_gone(l);
    free(p.data);
    return NULL;
}

/* ---- requests ---- */

static void forget(struct link *l, struct request *q)
{
    struct request **at = &l->list;

    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
}

/* Waits until q is answered; q is off the list afterwards. what: for the error. */
static int wait_answer(struct link *l, struct request *q, enum link_type want, int64_t deadline_ms,
                       const char *what, const char *key, struct err *err)
{
    struct timespec until = {deadline_ms / 1000, deadline_ms % 1000 * 1000000};
    int late = 0, done;

    pthread_mutex_lock(&l->lock);
    while (!q->done && !l->dead && !late && !aborted(l))
        late = pthread_cond_timedwait(&l->changed, &l->lock, &until) == ETIMEDOUT;
    forget(l, q);
    done = q->done;
    pthread_mutex_unlock(&l->lock);
    if (done && q->type == (int)want)
        return 0;
    if (done && q->type == LINK_REFUSED) {
        struct reader r = reader_of(q->body.data, q->body.len);
        char *why = get_str(&r);

        err_set(err, ERR_RANK, "%s \"%s\" was refused by the agent: %s", what, key, why);
        free(why);
        return -1;
    }
    if (done)
        return err_set(err, ERR_JOB_INTERNAL, "%s \"%s\" got an answer of type %d", what, key,
                       q->type);
    if (aborted(l))
        return err_set(err, ERR_RANK_ABORT, "rank %d was told to end while it waited for %s \"%s\"",
                       l->boot.rank, what, key);
    if (late)
        return err_set(err, ERR_RANK_TIMEOUT,
                       "rank %d waited too long for %s \"%s\": another rank has not got there",
                       l->boot.rank, what, key);
    return err_set(err, ERR_RANK, "the agent of rank %d is gone", l->boot.rank);
}

/* Sends a request of one string and waits. The answer is in q, whose body and fd the caller owns
 * also on failure. */
static int ask(struct link *l, struct request *q, enum link_type type, enum link_type want,
               const char *key, int64_t deadline_ms, const char *what, struct err *err)
{
    struct buf body = BUF_INIT;
    int rc;

    *q = (struct request){.fd = -1};
    do
        q->id = __atomic_add_fetch(&l->next_id, 1, __ATOMIC_RELAXED);
    while (q->id == 0);
    put_str(&body, key);
    pthread_mutex_lock(&l->lock);
    q->next = l->list;
    l->list = q;
    pthread_mutex_unlock(&l->lock);
    rc = send_packet(l, type, q->id, &body, -1, deadline_ms, err);
    buf_clear(&body);
    if (rc == 0)
        return wait_answer(l, q, want, deadline_ms, what, key, err);
    pthread_mutex_lock(&l->lock);
    forget(l, q);
    pthread_mutex_unlock(&l->lock);
    return -1;
}

static int link_put(struct boot *b, const char *key, const void *value, size_t n, struct err *err)
{
    struct link *l = (struct link *)b;
    struct buf body = BUF_INIT;
    int rc;

    if (n > LINK_MAX_BYTES)
        return err_set(err, ERR_JOB_INTERNAL, "the value of key \"%s\" has %zu bytes, more than %d",
                       key, n, LINK_MAX_BYTES);
    put_str(&body, key);
    put_bytes(&body, value, (uint32_t)n);
    rc = send_packet(l, LINK_PUT, 0, &body, -1, clock_ms() + SEND_MS, err);
    buf_clear(&body);
    return rc;
}

static int link_get(struct boot *b, const char *key, void **value, size_t *n, int64_t deadline_ms,
                    struct err *err)
{
    struct request q;
    int rc = ask((struct link *)b, &q, LINK_GET, LINK_VALUE, key, deadline_ms, "key", err);

    if (rc == 0) {
        struct reader r = reader_of(q.body.data, q.body.len);
        uint32_t len;
        const uint8_t *p = get_bytes(&r, &len);

        if (reader_done(&r)) {
            *value = xmalloc((size_t)len + 1);
            memcpy(*value, p, len);
            ((char *)*value)[len] = 0; /* texts can be used as they are */
            *n = len;
        } else {
            rc = err_set(err, ERR_JOB_INTERNAL, "the answer for key \"%s\" is malformed", key);
        }
    }
    if (q.fd >= 0)
        close(q.fd);
    buf_clear(&q.body);
    return rc;
}

static int link_fence(struct boot *b, const char *name, int64_t deadline_ms, struct err *err)
{
    struct request q;
    int rc = ask((struct link *)b, &q, LINK_FENCE, LINK_FENCED, name, deadline_ms, "fence", err);

    if (q.fd >= 0)
        close(q.fd);
    buf_clear(&q.body);
    return rc;
}

static int link_putfd(struct boot *b, const char *key, int fd, struct err *err)
{
    struct buf body = BUF_INIT;
    int rc;

    put_str(&body, key);
    rc = send_packet((struct link *)b, LINK_PUTFD, 0, &body, fd, clock_ms() + SEND_MS, err);
    buf_clear(&body);
    return rc;
}

static int link_getfd(struct boot *b, const char *key, int *fd, int64_t deadline_ms,
                      struct err *err)
{
    struct request q;
    int rc = ask((struct link *)b, &q, LINK_GETFD, LINK_FD, key, deadline_ms, "descriptor", err);

    if (rc == 0 && q.fd < 0)
        rc = err_set(err, ERR_JOB_INTERNAL, "the answer for descriptor \"%s\" carries none", key);
    if (rc == 0)
        *fd = q.fd;
    else if (q.fd >= 0)
        close(q.fd);
    buf_clear(&q.body);
    return rc;
}

static void link_peer_lost(struct boot *b, int peer, const char *op, uint64_t seq)
{
    struct buf body = BUF_INIT;

    put_u32(&body, (uint32_t)peer);
    put_str(&body, op);
    put_u64(&body, seq);
    send_packet((struct link *)b, LINK_LOST, 0, &body, -1, clock_ms() + SEND_MS, NULL);
    buf_clear(&body);
}

/* ---- open and close ---- */

static int read_welcome(struct link *l, struct packet *p, struct err *err)
{
    struct reader r = reader_of(p->data, p->n);
    struct boot *b = &l->boot;
    uint32_t type = get_u8(&r), n;
    const uint8_t *key;

    get_u32(&r);
    if (type == LINK_REFUSED) {
        char *why = get_str(&r);

        err_set(err, ERR_RANK, "the agent refused this rank: %s", why);
        free(why);
        return -1;
    }
    b->rank = (int)get_u32(&r);
    b->world = (int)get_u32(&r);
    b->local_rank = (int)get_u32(&r);
    b->local_world = (int)get_u32(&r);
    b->node = (int)get_u32(&r);
    b->nodes = (int)get_u32(&r);
    b->epoch = get_u32(&r);
    if (type != LINK_WELCOME || r.failed || b->world < 1 || b->world > LINK_MAX_WORLD ||
        p->nfds != 2)
        return err_set(err, ERR_JOB_INTERNAL, "the agent's welcome is malformed");
    b->node_of = get_node_of(&r, b->world);
    key = get_bytes(&r, &n);
    l->address = get_str(&r);
    if (!reader_done(&r) || n != sizeof l->key)
        return err_set(err, ERR_JOB_INTERNAL, "the agent's welcome is malformed");
    memcpy(l->key, key, sizeof l->key);
    b->key = l->key;
    b->address = l->address;
    b->page = mmap(NULL, LINK_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd[0], 0);
    if (b->page == MAP_FAILED) {
        b->page = NULL;
        return err_set(err, ERR_RANK, "the page shared with the agent cannot be mapped: %m");
    }
    b->abort_fd = p->fd[1];
    p->fd[1] = p->fd[--p->nfds]; /* kept; the memfd is closed by the caller, the mapping stays */
    return 0;
}

static int shake_hands(struct link *l, struct err *err)
{
    int64_t deadline = clock_ms() + WELCOME_MS;
    struct packet p = {.data = xmalloc(LINK_MAX_BYTES)};
    struct buf hello = BUF_INIT;
    int rc, got;

    put_str(&hello, build_id());
    put_u32(&hello, (uint32_t)getpid());
    rc = send_packet(l, LINK_HELLO, 1, &hello, -1, deadline, err);
    buf_clear(&hello);
    while (rc == 0 && !p.n) {
        struct pollfd set = {l->fd, POLLIN, 0};
        int64_t left = deadline - clock_ms();

        if (left <= 0)
            rc = err_set(err, ERR_RANK_TIMEOUT, "the agent did not answer within %d s",
                         WELCOME_MS / 1000);
        else if (poll(&set, 1, (int)left) > 0 && (got = receive(l->fd, &p)) <= 0)
            rc = err_set(err, ERR_RANK, "the agent closed the connection before it began: %s",
                         got ? strerror(errno) : "end of stream");
    }
    if (rc == 0)
        rc = read_welcome(l, &p, err);
    close_fds(&p);
    free(p.data);
    return rc;
}

static int start_reader(struct link *l, struct err *err)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all); /* signals are for the thread that computes */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&l->reader, NULL, reader_main, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        errno = rc;
        return err_set(err, ERR_RANK, "a thread cannot be started: %m");
    }
    l->have_reader = 1;
    return 0;
}

int link_open(struct link **link, struct boot **boot, struct err *err)
{
    const char *env = getenv("DS_AGENT_FD");
    pthread_condattr_t attr;
    struct link *l;
    int64_t fd;

    *link = NULL;
    *boot = NULL;
    if (!env)
        return err_set(err, ERR_INPUT,
                       "this program is started by ds-launch (DS_AGENT_FD is not set)");
    if (parse_i64(env, 0, INT_MAX, &fd) < 0 || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
        return err_set(err, ERR_INPUT,
                       "DS_AGENT_FD=%s is not an open descriptor: start this program by ds-launch",
                       env);
    l = xcalloc(1, sizeof *l);
    l->fd = (int)fd;
    l->next_id = 1;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &attr);
    pthread_condattr_destroy(&attr);
    l->boot = (struct boot){.abort_fd = -1,
                            .put = link_put,
                            .get = link_get,
                            .fence = link_fence,
                            .putfd = link_putfd,
                            .getfd = link_getfd,
                            .peer_lost = link_peer_lost};
    if (shake_hands(l, err) < 0 || start_reader(l, err) < 0) {
        link_close(l);
        return -1;
    }
    *link = l;
    *boot = &l->boot;
    return 0;
}

void link_close(struct link *l)
{
    if (!l)
        return;
    __atomic_store_n(&l->closing, 1, __ATOMIC_RELEASE);
    shutdown(l->fd, SHUT_RDWR);
    if (l->have_reader)
        pthread_join(l->reader, NULL);
    close(l->fd);
    if (l->boot.abort_fd >= 0)
        close(l->boot.abort_fd);
    if (l->boot.page)
        munmap(l->boot.page, LINK_PAGE);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l->boot.node_of);
    free(l->address);
    free(l);
}

static int send_text(struct link *l, enum link_type type, const char *text, int64_t deadline_ms)
{
    struct buf body = BUF_INIT;
    int rc;

    put_bytes(&body, text, (uint32_t)strlen(text));
    rc = send_packet(l, type, 0, &body, -1, deadline_ms, NULL);
    buf_clear(&body);
    return rc;
}

int link_metric(struct link *l, const char *json)
{
    return send_text(l, LINK_METRIC, json, 0);
}

int link_event(struct link *l, const char *json)
{
    return send_text(l, LINK_EVENT, json, clock_ms() + SEND_MS);
}

void link_fail(struct link *l, const struct err *why)
{
    struct buf body = BUF_INIT;

    put_u32(&body, (uint32_t)why->code);
    put_str(&body, why->text);
    send_packet(l, LINK_FAIL, 0, &body, -1, clock_ms() + SEND_MS, NULL);
    buf_clear(&body);
}
