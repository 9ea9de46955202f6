/* The control socket of a job: a signal may end the job, and with it the socket, while its sender waits for the
 * answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct control *control;
static int got;

static void info(void *ctx, struct buf *json)
{
    buf_adds(json, "{}");
}

static void ends(void *ctx, int signo)
{
    got = signo;
    control_close(control);
    control = NULL;
}

static void a_signal_that_ends_the_job_is_answered(void **state)
{
    static const struct control_events events = {info, ends};
    char folder[] = "/tmp/ds-control.XXXXXX", path[64];
    struct err err = ERR_INIT;
    uv_loop_t loop;
    int status;
    pid_t pid;

    assert_non_null(mkdtemp(folder));
    setenv("XDG_RUNTIME_DIR", folder, 1);
    uv_loop_init(&loop);
    control = control_open(&loop, "abc", &events, NULL, &err);
    assert_string_equal(err.text, "");
    assert_non_null(control);
    pid = fork();
    if (pid == 0) {
        struct buf answer = BUF_INIT;

        _exit(control_ask("abc", "signal 15\n", &answer, &err) || strcmp(buf_str(&answer), "{\"signal\":15}\n"));
    }
    uv_run(&loop, UV_RUN_DEFAULT); /* until the socket is closed */
    assert_int_equal(got, 15);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    snprintf(path, sizeof path, "%s/ds-launch", folder);
    assert_int_equal(rmdir(path), 0); /* nothing is left in it */
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_that_ends_the_job_is_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
