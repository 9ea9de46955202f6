/* The writing thread: a write that hangs for ever keeps nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void done(void *ctx, int node, size_t bytes)
{
    *(size_t *)ctx += bytes;
}

static int broken_fd[2], broken_error[2], nbroken;

static void broken(void *ctx, int fd, int error)
{
    assert_true(nbroken < 2);
    broken_fd[nbroken] = fd;
    broken_error[nbroken++] = error;
}

static const struct writer_events events = {done, broken};

/* A pipe that nobody reads. The loop can be closed and its memory given back while the thread stands in its write;
 * what it was given is written when the pipe is read after all. */
static void stuck(void **state)
{
    enum { BYTES = 1 << 20 };
    uv_loop_t *loop = malloc(sizeof *loop);
    char *data = calloc(1, BYTES);
    size_t reported = 0, got = 0;
    struct writer *w;
    int fd[2], i;
    (void)state;

    assert_int_equal(pipe(fd), 0);
    uv_loop_init(loop);
    w = writer_create(loop, 1, &events, &reported, NULL);
    writer_put(w, writer_fd(w, fd[1]), data, BYTES, 0, BYTES);
    assert_int_equal(writer_flush(w, 50), -1);
    writer_destroy(w);
    for (i = 0; i < 10; i++)
        uv_run(loop, UV_RUN_NOWAIT);
    assert_int_equal(uv_loop_close(loop), 0);
    memset(loop, 0xff, sizeof *loop);
    free(loop);
    while (got < BYTES) {
        ssize_t n = read(fd[0], data, BYTES);

        assert_true(n > 0);
        got += (size_t)n;
    }
    assert_int_equal(reported, 0);
    usleep(20000); /* the thread comes to its end, for the sanitizer to see what it does there */
    close(fd[0]);
    close(fd[1]);
    free(data);
}

/* A file is there as soon as anything was put, if no byte; with the folders above it, for nobody else. */
static void files(void **state)
{
    char folder[] = "/tmp/ds-test.XXXXXX", path[64];
    uv_loop_t loop;
    size_t reported = 0;
    struct writer *w;
    struct stat st;
    (void)state;

    assert_non_null(mkdtemp(folder));
    uv_loop_init(&loop);
    w = writer_create(&loop, 1, &events, &reported, NULL);
    snprintf(path, sizeof path, "%s/a/b/log", folder);
    writer_put(w, writer_file(w, path), NULL, 0, -1, 0);
    assert_int_equal(writer_flush(w, 10000), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_true((st.st_mode & 0777) == 0600 && st.st_size == 0);
    unlink(path);
    writer_destroy(w);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    for (const char *name = "b"; *name; name = *name == 'b' ? "a" : "") {
        snprintf(path, sizeof path, "%s/%s", folder, *name == 'b' ? "a/b" : "a");
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
        rmdir(path);
    }
    rmdir(folder);
}

/* Two descriptors that fail at once, each in its way, are told each once and with what it was. */
static void descriptors(void **state)
{
    int pair[2], full = open("/dev/full", O_WRONLY | O_CLOEXEC), i;
    struct sink *a, *b;
    size_t reported = 0;
    uv_loop_t loop;
    struct writer *w;
    (void)state;

    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(pair), 0);
    close(pair[0]);
    uv_loop_init(&loop);
    w = writer_create(&loop, 1, &events, &reported, NULL);
    a = writer_fd(w, full);
    b = writer_fd(w, pair[1]);
    for (i = 0; i < 3; i++) {
        writer_put(w, a, "x", 1, 0, 1);
        writer_put(w, b, "x", 1, 0, 1);
    }
    assert_int_equal(writer_flush(w, 10000), 0);
    uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(reported, 6);
    assert_int_equal(nbroken, 2);
    i = broken_fd[1] == full;
    assert_int_equal(broken_fd[i], full);
    assert_int_equal(broken_error[i], ENOSPC);
    assert_int_equal(broken_fd[!i], pair[1]);
    assert_int_equal(broken_error[!i], EPIPE);
    assert_int_equal(writer_error(w), ENOSPC);
    writer_destroy(w);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    close(full);
    close(pair[1]);
}

/* Where no thread can be had (its stack is larger than the address space), a sentence says so. */
static void no_thread(void **state)
{
    pthread_attr_t usual, huge;
    struct err err = ERR_INIT;
    uv_loop_t loop;
    (void)state;

    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    pthread_attr_init(&huge);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 50), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    uv_loop_init(&loop);
    assert_null(writer_create(&loop, 1, &events, NULL, &err));
    assert_non_null(strstr(err.text, "cannot start a thread"));
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&usual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stuck), cmocka_unit_test(files),
                                       cmocka_unit_test(descriptors), cmocka_unit_test(no_thread)};

    return cmocka_run_group_tests_name("writer", tests, NULL, NULL);
}
