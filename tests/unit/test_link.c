/* A rank's end of the agent socket against an agent of this test, which answers by hand over a
 * socket pair: packets as link.h words them, answers out of order, refusals, deadlines, abort, an
 * agent that is gone. */
#include "engine/base/buf.h"
#include "engine/base/build.h"
#include "engine/base/clock.h"
#include "engine/base/link.h"
#include "engine/base/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int agent, memfd, event; /* the agent's end */
static struct rank_page *page;
static struct link *link_;
static struct boot *boot;

struct got {
    uint8_t type;
    uint32_t id;
    int fd;
    size_t n;
    uint8_t body[LINK_MAX_BYTES];
};

/* The next packet of the rank, at most 10 s. */
static void receive(struct got *g)
{
    char control[CMSG_SPACE(sizeof(int))];
    uint8_t data[LINK_MAX_BYTES];
    struct iovec iov = {data, sizeof data};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct pollfd p = {agent, POLLIN, 0};
    struct cmsghdr *c;
    ssize_t n;

    assert_int_equal(poll(&p, 1, 10000), 1);
    n = recvmsg(agent, &m, MSG_CMSG_CLOEXEC);
    assert_true(n >= 5);
    g->type = data[0];
    g->id = (uint32_t)data[1] | (uint32_t)data[2] << 8 | (uint32_t)data[3] << 16 |
            (uint32_t)data[4] << 24;
    g->n = (size_t)n - 5;
    memcpy(g->body, data + 5, g->n);
    g->fd = -1;
    if ((c = CMSG_FIRSTHDR(&m)))
        memcpy(&g->fd, CMSG_DATA(c), sizeof g->fd);
}

static void answer(enum link_type type, uint32_t id, const struct buf *body, const int *fds,
                   int nfds)
{
    char control[CMSG_SPACE(3 * sizeof(int))] = {0};
    struct buf packet = BUF_INIT;
    struct iovec iov;
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

    put_u8(&packet, (uint8_t)type);
    put_u32(&packet, id);
    if (body)
        buf_add(&packet, body->data, body->len);
    iov = (struct iovec){packet.data, packet.len};
    if (nfds) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        *CMSG_FIRSTHDR(&m) =
            (struct cmsghdr){CMSG_LEN((size_t)nfds * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), fds, (size_t)nfds * sizeof(int));
    }
    assert_int_equal(sendmsg(agent, &m, MSG_NOSIGNAL), packet.len);
    buf_clear(&packet);
}

static void send_welcome(uint32_t id)
{
    static const uint8_t key[32] = "0123456789abcdef0123456789abcde";
    static const uint32_t head[] = {1, 3, 0, 2,
                                    1, 2, 9}; /* rank, world, local 0 of 2, node 1 of 2, epoch */
    static const uint32_t runs[] = {0, 1, 1, 1, 1, 2}; /* one rank on node 0, two on node 1 */
    int fds[2] = {memfd, event};
    struct buf b = BUF_INIT;

    for (int i = 0; i < 7; i++)
        put_u32(&b, head[i]);
    for (int i = 0; i < 6; i++)
        put_u32(&b, runs[i]);
    put_bytes(&b, key, sizeof key);
    put_str(&b, "192.0.2.7");
    answer(LINK_WELCOME, id, &b, fds, 2);
    buf_clear(&b);
}

static void *welcome_main(void *arg)
{
    struct got g;

    (void)arg;
    receive(&g);
    assert_int_equal(g.type, LINK_HELLO);
    send_welcome(g.id);
    return NULL;
}

static int setup(void **state)
{
    char text[16];
    struct err err = ERR_INIT;
    pthread_t thread;
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    agent = pair[0];
    memfd = memfd_create("page", MFD_CLOEXEC);
    assert_int_equal(ftruncate(memfd, 4096), 0);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    snprintf(text, sizeof text, "%d", pair[1]);
    setenv("DS_AGENT_FD", text, 1);
    pthread_create(&thread, NULL, welcome_main, NULL);
    if (link_open(&link_, &boot, &err) < 0)
        fail_msg("%s", err.text);
    pthread_join(thread, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    link_close(link_);
    munmap(page, 4096);
    close(memfd);
    close(event);
    close(agent);
    return 0;
}

/* One call of the rank in a thread of its own, while the test is the agent. */
struct call {
    pthread_t thread;
    const char *key;
    int64_t wait_ms;
    enum link_type type;
    int rc, fd;
    char *value;
    size_t n;
    struct err err;
};

static void *call_main(void *arg)
{
    struct call *c = arg;
    int64_t deadline = clock_ms() + c->wait_ms;
    void *value = NULL;

    if (c->type == LINK_GET)
        c->rc = boot->get(boot, c->key, &value, &c->n, deadline, &c->err);
    else if (c->type == LINK_FENCE)
        c->rc = boot->fence(boot, c->key, deadline, &c->err);
    else
        c->rc = boot->getfd(boot, c->key, &c->fd, deadline, &c->err);
    c->value = value;
    return NULL;
}

static struct call *start(enum link_type type, const char *key, int64_t wait_ms)
{
    struct call *c = xcalloc(1, sizeof *c);

    c->type = type;
    c->key = key;
    c->wait_ms = wait_ms;
    c->fd = -1;
    pthread_create(&c->thread, NULL, call_main, c);
    return c;
}

static void finish(struct call *c)
{
    pthread_join(c->thread, NULL);
}

static void drop(struct call *c)
{
    free(c->value);
    free(c);
}

/* ---- tests ---- */

static void welcome(void **state)
{
    (void)state;
    assert_true(boot->rank == 1 && boot->world == 3 && boot->local_rank == 0 &&
                boot->local_world == 2);
    assert_true(boot->node == 1 && boot->nodes == 2 && boot->epoch == 9);
    assert_true(boot->node_of[0] == 0 && boot->node_of[1] == 1 && boot->node_of[2] == 1);
    assert_string_equal(boot->address, "192.0.2.7");
    assert_memory_equal(boot->key, "0123456789abcdef0123456789abcde", 32);
    boot->page->step = 77;
    assert_int_equal(page->step, 77);
    assert_int_equal(fcntl(boot->abort_fd, F_GETFD), FD_CLOEXEC);
}

static void put_and_events(void **state)
{
    static const uint8_t put_body[] = {3, 0, 0, 0, 'k', 'e', 'y', 3, 0, 0, 0, 'a', 0, 'b'};
    static const uint8_t lost_body[] = {2,   0,   0, 0, 4, 0, 0, 0, 's', 'e',
                                        'n', 'd', 5, 0, 0, 0, 0, 0, 0,   0};
    static const uint8_t fail_body[] = {16, 0, 0, 0, 3, 0, 0, 0, 'o', 'h', '!'};
    struct err err, why = {ERR_INPUT, "oh!"};
    struct got g;

    (void)state;
    assert_int_equal(boot->put(boot, "key", "a\0b", 3, &err), 0);
    receive(&g);
    assert_true(g.type == LINK_PUT && g.id == 0 && g.n == sizeof put_body);
    assert_memory_equal(g.body, put_body, g.n);
    boot->peer_lost(boot, 2, "send", 5);
    receive(&g);
    assert_true(g.type == LINK_LOST && g.n == sizeof lost_body);
    assert_memory_equal(g.body, lost_body, g.n);
    link_fail(link_, &why);
    receive(&g);
    assert_true(g.type == LINK_FAIL && g.n == sizeof fail_body);
    assert_memory_equal(g.body, fail_body, g.n);
    assert_int_equal(link_metric(link_, "{\"step\":1}"), 0);
    receive(&g);
    assert_true(g.type == LINK_METRIC && g.id == 0 && g.n == 14 &&
                memcmp(g.body + 4, "{\"step\":1}", 10) == 0);
    assert_int_equal(link_event(link_, "{}"), 0);
    receive(&g);
    assert_true(g.type == LINK_EVENT && g.n == 6);
}

static void answers_out_of_order(void **state)
{
    struct call *a = start(LINK_GET, "a", 10000), *b;
    struct got ga, gb;
    struct buf value = BUF_INIT;

    (void)state;
    receive(&ga);
    b = start(LINK_FENCE, "b", 10000);
    receive(&gb);
    assert_true(ga.type == LINK_GET && gb.type == LINK_FENCE && ga.id != gb.id && ga.id && gb.id);
    assert_memory_equal(ga.body, "\1\0\0\0a", 5);
    answer(LINK_FENCED, gb.id, NULL, NULL, 0);
    finish(b);
    assert_int_equal(b->rc, 0);
    put_bytes(&value, "x\0y", 3);
    answer(LINK_VALUE, 4711, &value, NULL, 0); /* nobody's */
    answer(LINK_VALUE, ga.id, &value, NULL, 0);
    finish(a);
    assert_int_equal(a->rc, 0);
    assert_int_equal(a->n, 3);
    assert_memory_equal(a->value, "x\0y", 4);
    drop(a);
    drop(b);
    buf_clear(&value);
}

static void descriptors(void **state)
{
    struct call *c;
    struct err err;
    struct got g;
    int pipe_[2];
    char byte = 0;

    (void)state;
    assert_int_equal(pipe2(pipe_, O_CLOEXEC), 0);
    assert_int_equal(boot->putfd(boot, "p", pipe_[1], &err), 0);
    receive(&g);
    assert_true(g.type == LINK_PUTFD && g.fd >= 0);
    assert_int_equal(write(g.fd, "!", 1), 1);
    assert_int_equal(read(pipe_[0], &byte, 1), 1);
    assert_int_equal(byte, '!');
    close(g.fd);
    c = start(LINK_GETFD, "q", 10000);
    receive(&g);
    answer(LINK_FD, g.id, NULL, &pipe_[1], 1);
    finish(c);
    assert_int_equal(c->rc, 0);
    assert_int_equal(fcntl(c->fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(write(c->fd, "?", 1), 1);
    assert_int_equal(read(pipe_[0], &byte, 1), 1);
    assert_int_equal(byte, '?');
    close(c->fd);
    drop(c);
    close(pipe_[0]);
    close(pipe_[1]);
}

static void refused_and_late(void **state)
{
    struct call *c = start(LINK_GET, "a", 10000);
    struct buf why = BUF_INIT;
    struct got g;

    (void)state;
    receive(&g);
    put_str(&why, "the epoch is over");
    answer(LINK_REFUSED, g.id, &why, NULL, 0);
    finish(c);
    assert_int_equal(c->rc, -1);
    assert_string_equal(c->err.text, "key \"a\" was refused by the agent: the epoch is over");
    drop(c);
    buf_clear(&why);

    c = start(LINK_FENCE, "step", 50);
    receive(&g);
    finish(c);
    assert_int_equal(c->rc, -1);
    assert_int_equal(c->err.code, ERR_RANK_TIMEOUT);
    assert_non_null(strstr(c->err.text, "fence \"step\""));
    answer(LINK_FENCED, g.id, NULL, NULL, 0); /* too late: goes nowhere */
    drop(c);

    c = start(LINK_GET, "b", 10000); /* and the link still works */
    receive(&g);
    put_bytes(&why, "v", 1);
    answer(LINK_VALUE, g.id, &why, NULL, 0);
    finish(c);
    assert_int_equal(c->rc, 0);
    drop(c);
    buf_clear(&why);
}

static void malformed_answers(void **state)
{
    struct call *c = start(LINK_GET, "a", 10000);
    struct got g;
    struct buf bad = BUF_INIT;

    (void)state;
    receive(&g);
    put_u32(&bad, 1000); /* longer than the packet */
    answer(LINK_VALUE, g.id, &bad, NULL, 0);
    finish(c);
    assert_int_equal(c->err.code, ERR_JOB_INTERNAL);
    drop(c);
    c = start(LINK_GETFD, "b", 10000);
    receive(&g);
    answer(LINK_FD, g.id, NULL, NULL, 0);
    finish(c);
    assert_int_equal(c->err.code, ERR_JOB_INTERNAL);
    drop(c);
    buf_clear(&bad);
}

/* The agent's order: abort word, then the eventfd. A wait without end ends. */
static void abort_ends_waits(void **state)
{
    struct call *c = start(LINK_GET, "never", 3600 * 1000);
    struct got g;
    uint64_t one = 1;

    (void)state;
    receive(&g);
    __atomic_store_n(&page->abort, 1, __ATOMIC_RELEASE);
    assert_int_equal(write(event, &one, sizeof one), sizeof one);
    finish(c);
    assert_int_equal(c->rc, -1);
    assert_int_equal(c->err.code, ERR_RANK_ABORT);
    drop(c);
}

/* An agent that is gone raises the abort flag for everything else that waits. */
static void agent_is_gone(void **state)
{
    struct call *c = start(LINK_GET, "never", 3600 * 1000);
    struct pollfd p = {boot->abort_fd, POLLIN, 0};
    struct err err;
    struct got g;

    (void)state;
    receive(&g);
    shutdown(agent, SHUT_RDWR);
    finish(c);
    assert_int_equal(c->rc, -1);
    drop(c);
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_int_equal(__atomic_load_n(&page->abort, __ATOMIC_ACQUIRE), 1);
    assert_int_equal(boot->put(boot, "k", "v", 1, &err), -1);
    assert_int_equal(link_metric(link_, "{}"), -1);
}

/* The agent reads nothing: metrics never wait. */
static void agent_is_stuck(void **state)
{
    char big[20000];

    (void)state;
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(link_metric(link_, big), 0);
}

static void too_large(void **state)
{
    static char big[LINK_MAX_BYTES + 1];
    struct err err;

    (void)state;
    assert_int_equal(boot->put(boot, "k", big, sizeof big, &err), -1);
    assert_int_equal(err.code, ERR_JOB_INTERNAL);
    assert_int_equal(boot->put(boot, "k", big, LINK_MAX_BYTES - 14, &err),
                     0); /* 5 + 5 + 4 around it */
}

static void not_by_ds_launch(void **state)
{
    struct link *l;
    struct boot *b;
    struct err err;

    (void)state;
    unsetenv("DS_AGENT_FD");
    assert_int_equal(link_open(&l, &b, &err), -1);
    assert_true(err.code == ERR_INPUT && strstr(err.text, "ds-launch"));
    setenv("DS_AGENT_FD", "987654", 1);
    assert_int_equal(link_open(&l, &b, &err), -1);
    assert_non_null(strstr(err.text, "987654"));
    setenv("DS_AGENT_FD", "x", 1);
    assert_int_equal(link_open(&l, &b, &err), -1);
    assert_null(l);
    link_close(NULL);
}

static void bad_welcome(void **state)
{
    struct link *l;
    struct boot *b;
    struct err err;
    struct buf body = BUF_INIT;
    char text[16];
    int pair[2];

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        int fds[3] = {0, 0, 0}; /* kind 3: more descriptors than a packet has */

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
        agent = pair[0];
        snprintf(text, sizeof text, "%d", pair[1]);
        setenv("DS_AGENT_FD", text, 1);
        buf_reset(&body);
        put_str(&body, "another build");
        if (kind == 0)
            close(agent);
        else
            answer(kind == 1 ? LINK_REFUSED : LINK_WELCOME, 1, &body, fds, kind == 3 ? 3 : 0);
        assert_int_equal(link_open(&l, &b, &err), -1);
        assert_non_null(strstr(err.text, kind == 0   ? "gone"
                                         : kind == 1 ? "another build"
                                         : kind == 2 ? "malformed"
                                                     : "Message too long"));
        if (kind)
            close(agent);
    }
    buf_clear(&body);
}

#define LINKED(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LINKED(welcome),
        LINKED(put_and_events),
        LINKED(answers_out_of_order),
        LINKED(descriptors),
        LINKED(refused_and_late),
        LINKED(malformed_answers),
        LINKED(abort_ends_waits),
        LINKED(agent_is_gone),
        LINKED(agent_is_stuck),
        LINKED(too_large),
        cmocka_unit_test(not_by_ds_launch),
        cmocka_unit_test(bad_welcome),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
