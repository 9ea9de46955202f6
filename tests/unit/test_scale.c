/* The loss scale against traces worked by hand from DeepSpeed's rule, which scale.h states. */
#include "engine/optim/scale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static struct job job_of(int hysteresis, int consecutive, int window, double least)
{
    return (struct job){.fp16 = {.enabled = 1, .initial_scale_power = 4, .hysteresis = hysteresis,
                                 .consecutive_hysteresis = consecutive, .window = window, .min_loss_scale = least}};
}

/* steps: '.' good, 'x' overflowed; want: the scale after each. */
static void trace(const struct job *job, const char *steps, const double *want)
{
    struct loss_scale s = loss_scale_of(job);

    for (size_t i = 0; i < strlen(steps); i++) {
        int rc = loss_scale_step(&s, job, steps[i] == 'x');

        if (rc != (want[i] < 0 ? -1 : 0) || (rc == 0 && s.scale != want[i]))
            fail_msg("step %zu: %g (%d), not %g", i, s.scale, rc, want[i]);
    }
}

/* With a hysteresis of 1 every overflow halves; the first doubling comes at good step window + 1. */
static void hysteresis_of_one(void **state)
{
    static const double want[] = {16, 16, 16, 32, 32, 32, 64, 32, 32, 32, 32, 64, 32, 16};
    struct job job = job_of(1, 0, 3, 1);

    trace(&job, ".......x....xx", want);
}

/* Two overflows halve, whatever lies between, until a doubling gives the hysteresis back. */
static void hysteresis_of_two(void **state)
{
    static const double want[] = {16, 16, 16, 8, 4, 4, 4, 8, 8, 4};
    struct job job = job_of(2, 0, 2, 1);

    trace(&job, ".x.xx...xx", want);
}

/* The good step between two overflows gives it back. */
static void consecutive_hysteresis(void **state)
{
    static const double want[] = {16, 16, 16, 16, 8, 8, 8, 16, 16, 8};
    struct job job = job_of(2, 1, 2, 1);

    trace(&job, ".x.xx...xx", want);
}

static void the_floor_ends_the_run(void **state)
{
    static const double want[] = {8, 4, 3, -1};
    struct job job = job_of(1, 0, 1000, 3);

    trace(&job, "xxxx", want);
}

static void a_static_scale_stays(void **state)
{
    static const double want[] = {1024, 1024, 1024, 1024}, off[] = {1, 1, 1};
    struct job job = job_of(1, 0, 1, 1), fp32 = {0};

    job.fp16.loss_scale = 1024;
    trace(&job, "xx..", want);
    assert_false(loss_scale_dynamic(&job));
    trace(&fp32, "x..", off);
    assert_false(loss_scale_dynamic(&fp32));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hysteresis_of_one),      cmocka_unit_test(hysteresis_of_two),
        cmocka_unit_test(consecutive_hysteresis), cmocka_unit_test(the_floor_ends_the_run),
        cmocka_unit_test(a_static_scale_stays),
    };

    return cmocka_run_group_tests_name("scale", tests, NULL, NULL);
}
