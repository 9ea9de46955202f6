/* Many links behind one bastion that dies. The session, the tube and the dial are this file's own, so that the moment
 * is ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/ssh_dial.h"
#include "launcher/ssh_link.h"
#include "launcher/ssh_tube.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define HOSTS 20000

typedef void socket_fn(void *ctx, int fd, const struct err *why);

static struct {
    socket_fn *done;
    void *ctx;
} dialled, tube[HOSTS];
static int tubes, down_count, cut_off;
static const struct ssh_wire_events *session;
static void *session_ctx;

struct ssh_dial *ssh_dial_start(uv_loop_t *loop, const char *host, int port, enum ssh_family family,
                                int64_t timeout_ms, int64_t user_timeout_ms, socket_fn *done, void *ctx)
{
    dialled.done = done, dialled.ctx = ctx;
    return NULL;
}

void ssh_dial_stop(struct ssh_dial *d)
{
}

struct ssh_tube *ssh_tube_open(uv_loop_t *loop, struct ssh_wire *bastion, const char *host, int port, socket_fn *done,
                               void *ctx)
{
    tube[tubes].done = done, tube[tubes].ctx = ctx;
    return (struct ssh_tube *)&tube[tubes++];
}

void ssh_tube_close(struct ssh_tube *t)
{
}

int ssh_wire_open(struct ssh_wire **w, uv_loop_t *loop, int fd, const struct ssh_login *login,
                  const struct ssh_wire_events *events, void *ctx, struct err *err)
{
    *w = NULL;
    session = events, session_ctx = ctx;
    return 0;
}

void ssh_wire_close(struct ssh_wire *w)
{
}

struct ssh_keyring *ssh_keyring_create(void)
{
    return NULL;
}

void ssh_keyring_destroy(struct ssh_keyring *r)
{
}

static void up(void *ctx)
{
}

static void note(void *ctx, const char *line)
{
}

static void down(void *ctx, const struct err *why)
{
    down_count++;
    cut_off += strstr(why->text, "the power failed") != NULL;
}

static void small_stack(void)
{
    struct rlimit l;

    assert_int_equal(getrlimit(RLIMIT_STACK, &l), 0);
    l.rlim_cur = 1u << 20;
    assert_int_equal(setrlimit(RLIMIT_STACK, &l), 0);
}

static void test_bastion_dies(void **state)
{
    static const struct ssh_link_events events = {up, note, down};
    static struct ssh_link *link[HOSTS];
    static char config[] = "/tmp/ds-test.XXXXXX";
    static const char text[] = "Host gate\n ProxyJump none\nHost *\n ProxyJump gate\n";
    struct options o = {.ssh_config = config, .connect_timeout_ms = 600000};
    int fd = mkstemp(config);
    struct err err = ERR_INIT, dead = ERR_INIT;
    struct ssh_pool *pool;
    char name[16];
    uv_loop_t loop;

    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    uv_loop_init(&loop);
    assert_int_equal(ssh_pool_create(&pool, &loop, &o, &err), 0);
    for (int i = 0; i < HOSTS; i++) {
        snprintf(name, sizeof name, "h%d", i);
        assert_int_equal(ssh_link_open(&link[i], pool, name, NULL, 0, &events, NULL, &err), 0);
    }
    uv_run(&loop, UV_RUN_NOWAIT);
    assert_non_null(dialled.done);
    dialled.done(dialled.ctx, 0, NULL);
    session->up(session_ctx);
    assert_int_equal(tubes, SSH_HANDSHAKES);
    small_stack();
    err_set(&dead, ERR_NODE, "the power failed");
    session->down(session_ctx, &dead, 0);
    err_set(&err, ERR_NODE, "the connection was closed");
    tube[0].done(tube[0].ctx, -1, &err); /* it will try again; its place goes to the next, and that one's, and so on */
    assert_int_equal(down_count, HOSTS - SSH_HANDSHAKES);
    assert_int_equal(cut_off, HOSTS - SSH_HANDSHAKES);
    for (int i = 0; i < HOSTS; i++)
        ssh_link_close(link[i]);
    ssh_pool_destroy(pool);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    unlink(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bastion_dies)};

    return cmocka_run_group_tests_name("ssh_link", tests, NULL, NULL);
}
