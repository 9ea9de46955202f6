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

/* DeepSpeed's OneCycle, worked by hand: 4 up, 2 down, then a decay every 2 steps. */
static void one_cycle(void **state)
{
    struct job j = {.sched = SCHED_ONE_CYCLE, .betas = {2, {0.5, 0.99}},
                    .cycle = {.min_lr = 1, .max_lr = 5, .first = 4, .second = 2, .second_stairs = -1,
                              .decay_step = 2, .decay_lr_rate = 0.5, .momentum = 1, .min_mom = 0.8,
                              .max_mom = 0.9, .decay_mom_rate = 0.1}};
    static const double lr[] = {2, 3, 4, 5, 3, 1, 1 / 1.25, 1 / 1.5};
    static const double mom[] = {0.875, 0.85, 0.825, 0.8, 0.85, 0.9, 0.9 * 1.05, 0.9 * 1.1};

    for (int i = 0; i < 8; i++) {
        near(schedule_lr(&j, i, 0), lr[i]);
        near(schedule_momentum(&j, i), mom[i]);
    }
    near(schedule_momentum(&j, 1000), 1 - 0x1p-24); /* it never reaches 1 */
    j.cycle.second = 0; /* straight back */
    near(schedule_lr(&j, 2, 0), 4);
    near(schedule_lr(&j, 4, 0), 1 / 1.25);
    j.cycle.second = -1;
    near(schedule_lr(&j, 4, 0), 4);
    j.cycle.first_stairs = 2;
    near(schedule_lr(&j, 0, 0), 1);
    near(schedule_lr(&j, 1, 0), 3);
    near(schedule_lr(&j, 2, 0), 3);
    near(schedule_lr(&j, 3, 0), 5);
    near(schedule_lr(&j, 4, 0), 5);
    near(schedule_lr(&j, 5, 0), 3);
    j.cycle.momentum = 0;
    near(schedule_momentum(&j, 3), 0.5);
    j.optim = OPTIM_SGD; /* no betas to cycle */
    j.cycle.momentum = 1;
    j.momentum = 0.25;
    near(schedule_momentum(&j, 3), 0.25);
}

static void range_test(void **state)
{
    struct job j = {.sched = SCHED_RANGE_TEST, .range = {.min_lr = 0.5, .rate = 2, .step = 4}};

    near(schedule_lr(&j, 0, 0), 0.5 * 1.5);
    near(schedule_lr(&j, 7, 0), 0.5 * 5);
    j.range.staircase = 1;
    near(schedule_lr(&j, 2, 0), 0.5);
    near(schedule_lr(&j, 3, 0), 0.5 * 3);
    near(schedule_lr(&j, 6, 0), 0.5 * 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warmup_decay),
        cmocka_unit_test(the_run_is_the_total_when_none_is_given),
        cmocka_unit_test(warmup_cosine),
        cmocka_unit_test(warmup_only_and_none),
        cmocka_unit_test(one_cycle),
        cmocka_unit_test(range_test),
    };

    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
