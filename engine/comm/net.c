/* Connections between ranks of different nodes.
 *
 * Every rank listens on a port of its node's address until all its connections stand, and publishes
 * it in the key space. Of two ranks the higher connects. There is one connection per pair for
 * transfers (use 0) and one per link and lane of the chain (use 1 + link * lanes + lane). Both ends
 * prove the job's key: the connector sends a greeting with a nonce, the acceptor answers with its
 * own and a MAC over both, the connector sends a MAC in turn. A stranger is dropped; a missing peer
 * is found by the deadline.
 */
#include "engine/comm/group.h"
#include "engine/base/buf.h"
#include "engine/base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define GREETING UINT64_C(0x64732d636f6d6d31)
#define STRANGER_MS 2000      /* how long an accepted connection may take to prove itself */
#define PEER_TIMEOUT_MS 30000 /* unacknowledged data: TCP_USER_TIMEOUT */

struct greeting {
    uint64_t magic, group; /* group: hash of its id */
    int32_t from, to;      /* ranks in the group */
    uint32_t use, epoch;
    uint8_t nonce[32];
};
struct answer {
    uint8_t nonce[32], mac[32];
};
struct transcript {
    struct greeting greeting;
    uint8_t nonce[32];
    uint64_t role; /* 1 the acceptor's proof, 2 the connector's */
};

int net_send(int fd, const void *data, size_t n, size_t *at, char how[128])
{
    ssize_t got = send(fd, (const char *)data + *at, n - *at, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (got > 0) {
        *at += (size_t)got;
        return 1;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    snprintf(how, 128, "sending failed: %s", strerror(errno));
    return -1;
}

int net_recv(int fd, void *data, size_t n, size_t *at, char how[128])
{
    ssize_t got = recv(fd, (char *)data + *at, n - *at, MSG_DONTWAIT);

    if (got > 0) {
        *at += (size_t)got;
        return 1;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    snprintf(how, 128, got ? "receiving failed: %s" : "it closed the connection", strerror(errno));
    return -1;
}

int lane_worker(const struct group *g, int run, int lane)
{
    for (int r = 0; r < g->core.base.size; r++)
        if (g->node_of[r] == g->run[run].node && lane-- == 0)
            return r;
    return -1;
}

static int ended(struct group *g, int64_t deadline_ms, struct err *err)
{
    struct boot *b = g->core.boot;

    if (__atomic_load_n(&b->page->abort, __ATOMIC_ACQUIRE))
        return err_set(err, ERR_RANK_ABORT, "connecting the ranks was ended by the abort flag");
    if (clock_ms() < deadline_ms)
        return 0;
    return err_set(err, ERR_RANK_TIMEOUT,
                   "rank %d is not connected to all its peers within %lld ms", b->rank,
                   (long long)g->core.timeout_ms);
}

/* Waits for events on fd; 0 ready, -1 and err. */
static int await(struct group *g, int fd, short events, int64_t deadline_ms, struct err *err)
{
    struct pollfd p[2] = {{fd, events, 0}, {g->core.boot->abort_fd, POLLIN, 0}};

    do {
        if (ended(g, deadline_ms, err))
            return -1;
        poll(p, 2, 50);
    } while (!p[0].revents);
    return 0;
}

/* Sends or receives all n bytes. */
static int whole(struct group *g, int fd, void *data, size_t n, int out, int64_t deadline_ms,
                 struct err *err)
{
    size_t at = 0;
    char how[128];

    while (at < n) {
        int rc = out ? net_send(fd, data, n, &at, how) : net_recv(fd, data, n, &at, how);

        if (rc < 0)
            return err_set(err, ERR_RANK_PEER, "a connection between ranks ended early: %s", how);
        if (rc == 0 && await(g, fd, out ? POLLOUT : POLLIN, deadline_ms, err))
            return -1;
    }
    return 0;
}

static void prove(struct group *g, const struct greeting *hello, const uint8_t nonce[32], int role,
                  uint8_t mac[32])
{
    struct transcript t;

    memset(&t, 0, sizeof t);
    t.greeting = *hello;
    memcpy(t.nonce, nonce, 32);
    t.role = (uint64_t)role;
    auth_sign(g->core.boot->key, &t, sizeof t, mac);
}

static void tune(int fd)
{
    int on = 1, ms = PEER_TIMEOUT_MS, idle = 10, every = 5, count = 4;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

/* Keeps a proved connection where use says; in the epoll set for good (edge-triggered: a wait
 * starts only after every socket it cares for said "not now"). */
static int keep(struct group *g, int fd, int peer, uint32_t use, struct err *err)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    int *at = use ? &g->link[use - 1] : &g->mesh[peer];

    tune(fd);
    if (epoll_ctl(g->epoll, EPOLL_CTL_ADD, fd, &ev))
        return err_set(err, ERR_RANK, "cannot watch a connection: %m");
    *at = fd;
    return 0;
}

static int parse_address(const char *host, int port, struct sockaddr_storage *out, socklen_t *len,
                         struct err *err)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM},
                    *ai;
    char service[16];
    int rc;

    snprintf(service, sizeof service, "%d", port);
    rc = getaddrinfo(host, service, &hints, &ai);
    if (rc)
        return err_set(err, ERR_NODE, "\"%s\" is not a numeric address of a node: %s", host,
                       gai_strerror(rc));
    memcpy(out, ai->ai_addr, ai->ai_addrlen);
    *len = ai->ai_addrlen;
    freeaddrinfo(ai);
    return 0;
}

static int port_of(const struct sockaddr_storage *a)
{
    return ntohs(a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
                                          : ((const struct sockaddr_in *)a)->sin_port);
}

static int listen_here(struct group *g, struct err *err)
{
    struct boot *b = g->core.boot;
    struct sockaddr_storage addr;
    socklen_t len;
    char key[256], value[128];
    int fd;

    if (parse_address(b->address, 0, &addr, &len, err))
        return -1;
    fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) || listen(fd, 1024) ||
        getsockname(fd, (struct sockaddr *)&addr, &len)) {
        err_set(err, ERR_NODE, "cannot listen on %s for peers: %m; set an address of this node",
                b->address);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    snprintf(key, sizeof key, "%s/address/%d", g->id, g->core.base.rank);
    snprintf(value, sizeof value, "%d %s", port_of(&addr), b->address);
    if (b->put(b, key, value, strlen(value) + 1, err)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int dial(struct group *g, int peer, int64_t deadline_ms, struct err *err)
{
    struct boot *b = g->core.boot;
    struct sockaddr_storage addr;
    socklen_t len, elen = sizeof(int);
    char key[256], *text, *host;
    size_t n;
    int fd, rc, port, error = 0;

    snprintf(key, sizeof key, "%s/address/%d", g->id, peer);
    if (b->get(b, key, (void **)&text, &n, deadline_ms, err))
        return -1;
    port = (int)strtol(text, &host, 10);
    rc = parse_address(*host == ' ' ? host + 1 : host, port, &addr, &len, err);
    free(text);
    if (rc)
        return -1;
    fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, ERR_RANK, "cannot make a socket: %m");
    if (connect(fd, (struct sockaddr *)&addr, len) && errno != EINPROGRESS)
        error = errno;
    else if (await(g, fd, POLLOUT, deadline_ms, err))
        rc = -1;
    else
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &elen);
    if (error)
        rc = err_set(err, ERR_NODE, "cannot connect to rank %d (node %d, port %d): %s",
                     g->world[peer], g->node_of[peer], port, strerror(error));
    if (rc == 0)
        return fd;
    close(fd);
    return -1;
}

static int connect_to(struct group *g, int peer, uint32_t use, int64_t deadline_ms, struct err *err)
{
    struct greeting hello = {.magic = GREETING,
                             .group = g->hash,
                             .from = g->core.base.rank,
                             .to = peer,
                             .use = use,
                             .epoch = g->core.boot->epoch};
    struct answer answer;
    uint8_t mac[32];
    int fd = dial(g, peer, deadline_ms, err);

    if (fd < 0)
        return -1;
    auth_nonce(hello.nonce);
    if (whole(g, fd, &hello, sizeof hello, 1, deadline_ms, err) ||
        whole(g, fd, &answer, sizeof answer, 0, deadline_ms, err))
        goto failed;
    prove(g, &hello, answer.nonce, 1, mac);
    if (!auth_equal(mac, answer.mac)) {
        err_set(err, ERR_RANK_PEER, "what answers for rank %d does not hold the job's key",
                g->world[peer]);
        goto failed;
    }
    prove(g, &hello, answer.nonce, 2, mac);
    if (whole(g, fd, mac, sizeof mac, 1, deadline_ms, err) || keep(g, fd, peer, use, err))
        goto failed;
    return 0;
failed:
    close(fd);
    return -1;
}

static int expected(struct group *g, const struct greeting *h)
{
    int size = g->core.base.size, me = g->core.base.rank;
    uint32_t uses = (uint32_t)((g->nruns - 1) * g->lanes);

    if (h->magic != GREETING || h->group != g->hash || h->epoch != g->core.boot->epoch ||
        h->to != me || h->from <= me || h->from >= size || h->use > uses ||
        g->node_of[h->from] == g->node_of[me])
        return 0;
    return (h->use ? g->link[h->use - 1] : g->mesh[h->from]) < 0;
}

/* One accepted connection. 1: kept, 0: a stranger, dropped, -1: err. */
static int admit(struct group *g, int fd, int64_t deadline_ms, struct err *err)
{
    int64_t until = clock_ms() + STRANGER_MS;
    struct greeting hello;
    struct answer answer;
    uint8_t mac[32], theirs[32];
    struct err why = ERR_INIT;

    until = until < deadline_ms ? until : deadline_ms;
    if (whole(g, fd, &hello, sizeof hello, 0, until, &why) || !expected(g, &hello))
        goto stranger;
    auth_nonce(answer.nonce);
    prove(g, &hello, answer.nonce, 1, answer.mac);
    prove(g, &hello, answer.nonce, 2, mac);
    if (whole(g, fd, &answer, sizeof answer, 1, until, &why) ||
        whole(g, fd, theirs, sizeof theirs, 0, until, &why) || !auth_equal(mac, theirs))
        goto stranger;
    if (keep(g, fd, hello.from, hello.use, err) == 0)
        return 1;
    close(fd);
    return -1;
stranger:
    close(fd);
    return ended(g, deadline_ms, err);
}

/* Calls fn for every connection this rank is part of: peer, use. */
static int each(struct group *g, int (*fn)(struct group *, int, uint32_t, void *), void *arg)
{
    int me = g->core.base.rank;

    for (int r = 0; r < g->core.base.size; r++)
        if (g->node_of[r] != g->node_of[me] && fn(g, r, 0, arg))
            return -1;
    for (int i = 0; i + 1 < g->nruns; i++)
        for (int l = 0; l < g->lanes; l++) {
            int a = lane_worker(g, i, l), b = lane_worker(g, i + 1, l);

            if ((a == me || b == me) &&
                fn(g, a == me ? b : a, (uint32_t)(1 + i * g->lanes + l), arg))
                return -1;
        }
    return 0;
}

struct opening {
    int64_t deadline_ms;
    int to_accept;
    struct err *err;
};

static int open_one(struct group *g, int peer, uint32_t use, void *arg)
{
    struct opening *o = arg;

    if (peer < g->core.base.rank)
        return connect_to(g, peer, use, o->deadline_ms, o->err);
    o->to_accept++;
    return 0;
}

static int accept_all(struct group *g, int fd, struct opening *o)
{
    while (o->to_accept > 0) {
        int one = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), rc = 0;

        if (one >= 0)
            rc = admit(g, one, o->deadline_ms, o->err);
        else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            return err_set(o->err, ERR_RANK, "cannot accept a peer's connection: %m");
        else
            rc = await(g, fd, POLLIN, o->deadline_ms, o->err);
        if (rc < 0)
            return -1;
        o->to_accept -= rc;
    }
    return 0;
}

int net_open(struct group *g, struct err *err)
{
    struct opening o = {clock_ms() + g->core.timeout_ms, 0, err};
    struct epoll_event ev = {.events = EPOLLIN};
    int fd, rc;

    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (g->epoll < 0)
        return err_set(err, ERR_RANK, "cannot make an epoll set: %m");
    if (g->core.boot->abort_fd >= 0 &&
        epoll_ctl(g->epoll, EPOLL_CTL_ADD, g->core.boot->abort_fd, &ev))
        return err_set(err, ERR_RANK, "cannot watch the abort flag: %m");
    fd = listen_here(g, err);
    if (fd < 0)
        return -1;
    rc = each(g, open_one, &o);
    if (rc == 0)
        rc = accept_all(g, fd, &o);
    close(fd);
    return rc;
}

static void each_socket(struct group *g, void (*fn)(int fd))
{
    for (int r = 0; g->mesh && r < g->core.base.size; r++)
        if (g->mesh[r] >= 0)
            fn(g->mesh[r]);
    for (int i = 0; g->link && i < (g->nruns - 1) * g->lanes; i++)
        if (g->link[i] >= 0)
            fn(g->link[i]);
}

static void half_close(int fd)
{
    shutdown(fd, SHUT_WR);
}

void net_hang_up(struct group *g)
{
    each_socket(g, half_close);
}

/* Unread data would make close send a reset, and the peer lose what it has not read. */
static void drain_close(int fd)
{
    char waste[4096];

    shutdown(fd, SHUT_WR);
    while (recv(fd, waste, sizeof waste, MSG_DONTWAIT) > 0)
        ;
    close(fd);
}

void net_close(struct group *g)
{
    each_socket(g, drain_close);
    if (g->epoll >= 0)
        close(g->epoll);
    g->epoll = -1;
}
