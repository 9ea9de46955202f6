/* Learning-rate schedules against values worked by hand from the formulas in ds-job(5). */
#include "engine/optim/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-12 + 1e-9 * fabs(want))
        fail_msg("%.15g is not %.15g", got, want);
}

static void warmup_decay(void **state)
{
    struct job j = {.sched = SCHED_WARMUP_DECAY, .warmup_type = WARMUP_LINEAR, .lr = 9,
                    .warmup_max_lr = 1, .warmup_min_lr = 0.2, .warmup_num_steps = 10,
                    .total_num_steps = 110};

    near(schedule_lr(&j, 0, 0), 0.2);
    near(schedule_lr(&j, 5, 0), 0.2 + 0.8 * 0.5);
    near(schedule_lr(&j, 10, 0), 1);
    near(schedule_lr(&j, 60, 0), 0.2 + 0.8 * 0.5);
    near(schedule_lr(&j, 110, 0), 0.2);
    near(schedule_lr(&j, 500, 0), 0.2);
    j.warmup_type = WARMUP_LOG;
    near(schedule_lr(&j, 4, 0), 0.2 + 0.8 * 0.69897000433601880); /* ln 5 / ln 10 */
}

static void the_run_is_the_total_when_none_is_given(void **state)
{
    struct job j = {.sched = SCHED_WARMUP_DECAY, .warmup_type = WARMUP_LINEAR, .lr = 2,
                    .warmup_num_steps = 2};

    near(schedule_lr(&j, 2, 12), 2);
    near(schedule_lr(&j, 7, 12), 1);
}

static void warmup_cosine(void **state)
{
    struct job j = {.sched = SCHED_WARMUP_COSINE, .warmup_type = WARMUP_LINEAR, .lr = 2,
                    .warmup_num_steps = 10, .total_num_steps = 110, .warmup_min_ratio = 0.1,
                    .cos_min_ratio = 0.2};

    near(schedule_lr(&j, 0, 0), 0.2);
    near(schedule_lr(&j, 5, 0), 2 * (0.1 + 0.9 * 0.5));
    /* q = (59 - 10 + 1) / 100 = 0.5: cos = 0 */
    near(schedule_lr(&j, 59, 0), 2 * (0.2 + 0.8 * 0.5));
    near(schedule_lr(&j, 109, 0), 2 * 0.2);
    near(schedule_lr(&j, 1000, 0), 2 * 0.2);
}

static void warmup_only_and_none(void **state)
{
    struct job j = {.sched = SCHED_WARMUP_LR, .warmup_type = WARMUP_LINEAR, .lr = 3,
                    .warmup_num_steps = 4};

    near(schedule_lr(&j, 1, 0), 0.75);
    near(schedule_lr(&j, 400, 0), 3);
    j.sched = SCHED_NONE;
    near(schedule_lr(&j, 0, 0), 3);
    /* N = max(2, warmup_num_steps) */
    j.sched = SCHED_WARMUP_LR;
    j.warmup_num_steps = 1;
    near(schedule_lr(&j, 1, 0), 1.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warmup_decay),
        cmocka_unit_test(the_run_is_the_total_when_none_is_given),
        cmocka_unit_test(warmup_cosine),
        cmocka_unit_test(warmup_only_and_none),
    };

    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
