/* After the second step a step allocates nothing: malloc, calloc, realloc and aligned_alloc of the whole program
 * are counted on the training thread while steps 3 to 6 run. oneDNN makes a context per product: calls from it and
 * from its C++ library are not ours and not counted. */
#include "engine/train/train.h"

#include "engine/base/buf.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static __thread int counting;
static __thread long counted, foreign;

static void count(void *caller)
{
    Dl_info from;

    if (!counting)
        return;
    counting = 0;
    if (dladdr(caller, &from) && from.dli_fname &&
        (strstr(from.dli_fname, "libstdc++") || strstr(from.dli_fname, "libdnnl")))
        foreign++;
    else
        counted++;
    counting = 1;
}

__attribute__((visibility("default"))) void *malloc(size_t n)
{
    count(__builtin_return_address(0));
    return __libc_malloc(n);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
    count(__builtin_return_address(0));
    return __libc_realloc(p, n);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t to, size_t n)
{
    count(__builtin_return_address(0));
    return __libc_memalign(to, n);
}
#else
static int counting;
static long counted;
#endif

static const char job[] = "train_micro_batch_size_per_gpu = 3\ngradient_accumulation_steps = 2\n"
                          "[model]\nn_layer = 2\nn_head = 4\nn_embd = 32\nform = llama\n"
                          "[data]\nseq_len = 16\nvalid_split = 0.1\n"
                          "[run]\nthreads = 1\nsteps = 8\n";

static void steps_allocate_nothing(void **state)
{
    char path[] = "/tmp/ds-test-alloc-XXXXXX";
    int fd = mkstemp(path);
    struct settings_rows rows = {0};
    struct boot_world *w = boot_world_create(1, 1);
    struct err err = ERR_INIT;
    struct setup *s;
    struct train *t;
    void *(*volatile allocate)(size_t) = malloc; /* the compiler may not look through it */
    void *probe;

    for (int i = 0; i < 400; i++)
        assert_int_equal(write(fd, "in the beginning ", 17), 17);
    close(fd);
    assert_int_equal(settings_read(&rows, "job", job, strlen(job), &err), 0);
    settings_rows_add(&rows, "data.train", path, "test");
    if (setup_create(&s, &rows, 1, 1, NULL, &err) < 0 ||
        train_create(&t, s, boot_world_rank(w, 0), NULL, &err) < 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < 6; i++) {
        counting = i >= 2;
        if (train_step(t, &err) < 0)
            fail_msg("%s", err.text);
        counting = 0;
    }
    assert_int_equal(counted, 0);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    counting = 1; /* the counter counts */
    probe = allocate(1);
    counting = 0;
    free(probe);
    assert_int_equal(counted, 1);
#else
    (void)probe;
    (void)allocate;
#endif
    train_destroy(t);
    setup_destroy(s);
    settings_rows_clear(&rows);
    boot_world_destroy(w);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_allocate_nothing)};

    return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
