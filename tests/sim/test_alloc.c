/* After the second step a step allocates nothing: malloc, calloc, realloc and aligned_alloc of the whole program
 * are counted on the training thread while steps 3 to 6 run. oneDNN makes a context per product: calls from it and
 * from its C++ library are not ours and not counted. */
#include "engine/train/train.h"

#include "engine/base/buf.h"

#include <dlfcn.h>
#include <pthread.h>
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
static __thread int counting;
static __thread long counted;
#endif

static const char job[] = "train_micro_batch_size_per_gpu = 3\ngradient_accumulation_steps = 2\n"
                          "[model]\nn_layer = 2\nn_head = 4\nn_embd = 32\nform = llama\n"
                          "[data]\nseq_len = 16\nvalid_split = 0.1\n"
                          "[run]\nthreads = 1\nsteps = 8\n";

struct rank {
    struct boot *boot;
    const struct settings_rows *rows;
    struct err err;
    long counted;
    int rc;
};

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct setup *s = NULL;
    struct train *t = NULL;

    r->rc = setup_create(&s, r->rows, r->boot->world, 1, NULL, &r->err);
    if (!r->rc)
        r->rc = train_create(&t, s, r->boot, NULL, &r->err);
    for (int i = 0; i < 6 && !r->rc; i++) {
        counting = i >= 2;
        r->rc = train_step(t, &r->err);
        counting = 0;
    }
    r->counted = counted;
    train_destroy(t);
    setup_destroy(s);
    return NULL;
}

static void steps_of(const char *path, int world, const char *stage, const char *live)
{
    struct settings_rows rows = {0};
    struct boot_world *w = boot_world_create(world, 1);
    struct err err = ERR_INIT;
    struct rank r[2];
    pthread_t thread[2];

    assert_int_equal(settings_read(&rows, "job", job, strlen(job), &err), 0);
    settings_rows_add(&rows, "data.train", path, "test");
    settings_rows_add(&rows, "zero_optimization.stage", stage, "test");
    settings_rows_add(&rows, "zero_optimization.stage3_max_live_parameters", live, "test");
    settings_rows_add(&rows, "zero_optimization.stage3_param_persistence_threshold", "0", "test");
    for (int i = 0; i < world; i++) {
        r[i] = (struct rank){.boot = boot_world_rank(w, i), .rows = &rows};
        pthread_create(&thread[i], NULL, rank_main, &r[i]);
    }
    for (int i = 0; i < world; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < world; i++) {
        if (r[i].rc)
            fail_msg("stage %s: %s", stage, r[i].err.text);
        assert_int_equal(r[i].counted, 0);
    }
    settings_rows_clear(&rows);
    boot_world_destroy(w);
}

static void steps_allocate_nothing(void **state)
{
    static const char *const stage[] = {"0", "1", "2", "3"};
    char path[] = "/tmp/ds-test-alloc-XXXXXX";
    int fd = mkstemp(path);

    for (int i = 0; i < 400; i++)
        assert_int_equal(write(fd, "in the beginning ", 17), 17);
    close(fd);
    steps_of(path, 1, "0", "0");
    for (int i = 0; i < 4; i++)
        steps_of(path, 2, stage[i], "0");
    steps_of(path, 2, "3", "1e9");
    unlink(path);
}

static void the_counter_counts(void **state)
{
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    void *(*volatile allocate)(size_t) = malloc; /* the compiler may not look through it */
    void *p;

    counted = 0;
    counting = 1;
    p = allocate(1);
    counting = 0;
    free(p);
    assert_int_equal(counted, 1);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_allocate_nothing),
                                       cmocka_unit_test(the_counter_counts)};

    return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
