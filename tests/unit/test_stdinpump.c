/* Our stdin, read by a thread: several that share one pipe, as the jobs that a script starts at once may. A byte wakes
 * all, one gets it, and now and then another stands in read() then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/stdinpump.h"

#include <unistd.h>

#define PUMPS 8
#define ROUNDS 200

static void take(void *ctx, const void *data, size_t n)
{
    *(size_t *)ctx += n;
}

/* One byte for all of them. */
static void one_round(const int fd[2])
{
    struct stdin_pump *pump[PUMPS];
    size_t got = 0, i;
    uv_loop_t loop;

    uv_loop_init(&loop);
    for (i = 0; i < PUMPS; i++) {
        pump[i] = stdin_pump_create(&loop, fd[0], take, &got, NULL);
        stdin_pump_want(pump[i], 1000);
    }
    assert_int_equal(write(fd[1], "x", 1), 1);
    /* one that was left in its read may take it: then nobody here gets anything, and the next byte does it */
    for (i = 0; !got && i < 1000; i++) {
        if (i % 50 == 49)
            assert_int_equal(write(fd[1], "x", 1), 1);
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    assert_true(got > 0);
    for (i = 0; i < PUMPS; i++)
        stdin_pump_destroy(pump[i]);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void the_end_does_not_wait_for_a_byte(void **state)
{
    int fd[2], i;

    assert_int_equal(pipe(fd), 0);
    alarm(60); /* a test that hangs fails */
    for (i = 0; i < ROUNDS; i++)
        one_round(fd);
    alarm(0);
    close(fd[1]); /* whoever still reads goes */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_does_not_wait_for_a_byte),
    };

    return cmocka_run_group_tests_name("stdinpump", tests, NULL, NULL);
}
