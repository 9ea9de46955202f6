/* After the second step a step allocates nothing: malloc, calloc, realloc and aligned_alloc of the whole program
 * are counted on the training thread while steps 3 to 6 run. oneDNN makes a context per product: calls from it and
 * from its C++ library are not ours and not counted. */
#include "tests/sim/train_harness.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
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
                          "[model]\nn_layer = 3\nn_head = 4\nn_embd = 32\nform = llama\n"
                          "[data]\nseq_len = 16\nvalid_split = 0.1\n"
                          "[run]\nthreads = 1\nsteps = 8\n";

static int count_steps(struct train *t, void *arg, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < 6 && !rc; i++) {
        counting = i >= 2;
        rc = train_step(t, err);
        counting = 0;
    }
    *(long *)arg = counted;
    return rc;
}

static void steps_of(int world, const char *stage, const char *live, const char *checkpointing, const char *value)
{
    struct settings_rows rows = harness_rows(job, NULL, "zero_optimization.stage", stage,
                                             "zero_optimization.stage3_max_live_parameters", live,
                                             "zero_optimization.stage3_param_persistence_threshold", "0",
                                             checkpointing, value, NULL);
    struct harness_rank r[2];
    long allocations[2] = {-1, -1};

    for (int i = 0; i < world; i++)
        r[i] = (struct harness_rank){.rows = &rows, .body = count_steps, .arg = &allocations[i]};
    harness_run(r, world, 1);
    harness_ended_well(r, world);
    for (int i = 0; i < world; i++)
        assert_int_equal(allocations[i], 0);
    settings_rows_clear(&rows);
}

static void steps_allocate_nothing(void **state)
{
    static const char *const stage[] = {"0", "1", "2", "3"};

    steps_of(1, "0", "0", NULL, NULL);
    for (int i = 0; i < 4; i++)
        steps_of(2, stage[i], "0", NULL, NULL);
    steps_of(2, "3", "1e9", NULL, NULL);
    for (int i = 0; i < 4; i += 3) {
        steps_of(2, stage[i], "0", "activation_checkpointing.interval", "1");
        steps_of(2, stage[i], "0", "activation_checkpointing.interval", "2");
        steps_of(2, stage[i], "0", "activation_checkpointing.selective", "true");
    }
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

    return cmocka_run_group_tests_name("alloc", tests, harness_begin, harness_end);
}
