/* Many hosts in the queue of the spawner exec, none of which can be started any more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/spawner.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define HOSTS 20000

static struct {
    int down, no_pipe;
} count;

static void up(void *ctx)
{
}

static void data(void *ctx, const void *bytes, size_t n)
{
}

static void line(void *ctx, const char *text)
{
}

static void down(void *ctx, const struct err *why)
{
    count.down++;
    count.no_pipe += strstr(why->text, "Too many open files") != NULL;
}

static void limit(int which, rlim_t n)
{
    struct rlimit l;

    assert_int_equal(getrlimit(which, &l), 0);
    l.rlim_cur = n;
    assert_int_equal(setrlimit(which, &l), 0);
}

/* 64 commands run, the others wait; then one ends and no other gets a pipe: all are told so, one after the other. */
static void test_all_fail_at_once(void **state)
{
    static const struct channel_events events = {up, data, line, down};
    static struct channel *ch[HOSTS];
    struct options o = {.launcher_args = "exec sleep 600 # ds-agent", .connect_timeout_ms = 600000};
    struct host host = {.name = "h"};
    struct err err = ERR_INIT;
    uv_loop_t loop;
    void *pool;

    limit(RLIMIT_NOFILE, 1024);
    uv_loop_init(&loop);
    assert_int_equal(spawner_exec.create(&pool, &loop, &o, &err), 0);
    for (int i = 0; i < HOSTS; i++)
        assert_int_equal(spawner_exec.open(&ch[i], pool, &loop, &o, &host, i, &events, NULL, &err), 0);
    uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(count.down, 0);
    limit(RLIMIT_STACK, 1u << 20);
    limit(RLIMIT_NOFILE, 4);
    spawner_exec.shut(ch[0]);
    while (count.down < HOSTS - 63)
        uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(count.no_pipe, HOSTS - 64);
    limit(RLIMIT_NOFILE, 1024);
    for (int i = 0; i < HOSTS; i++)
        spawner_exec.shut(ch[i]);
    while (count.down < HOSTS)
        uv_run(&loop, UV_RUN_ONCE);
    for (int i = 0; i < HOSTS; i++)
        spawner_exec.close(ch[i]);
    spawner_exec.destroy(pool);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_fail_at_once)};

    return cmocka_run_group_tests_name("spawner_exec", tests, NULL, NULL);
}
