/* ds-rank lr: the learning rate of every step, and the momentum where it cycles, as columns, to look at before a
 * long run. */
#include "engine/train/train.h"

#include "engine/base/log.h"
#include "engine/base/parse.h"
#include "engine/optim/optim.h"
#include "engine/optim/schedule.h"

#include <stdio.h>
#include <string.h>

static int print_rates(const char *path, int64_t steps, struct err *err)
{
    struct settings_rows rows = {0};
    struct settings s;
    struct settings *tables[1] = {&s};
    struct job job;
    int rc;

    settings_init(&s, job_table, job_table_n, &job);
    rc = job_read(&rows, path, err);
    if (!rc)
        rc = settings_apply(tables, 1, &rows, "model.", NULL, err);
    if (!rc && !steps)
        steps = job.max_steps > 0 ? job.max_steps : job.total_num_steps;
    if (!rc && !steps)
        rc = err_set(err, ERR_INPUT,
                     "%s says neither run.steps nor scheduler.params.total_num_steps: give -n N", path);
    if (!rc)
        rc = optim_defaults(&job, &s, err);
    if (!rc)
        rc = schedule_check(&job, err);
    for (int64_t i = 0; !rc && i < steps; i++) {
        printf("%lld\t%.9g", (long long)i + 1,
               schedule_lr(&job, (double)i, (double)(job.max_steps > 0 ? job.max_steps : steps)));
        if (schedule_cycles_momentum(&job))
            printf("\t%.9g", schedule_momentum(&job, (double)i));
        putchar('\n');
    }
    settings_clear(&s);
    settings_rows_clear(&rows);
    return rc;
}

static const char usage[] = "usage: ds-launch lr JOB [-n STEPS]";
static const char help[] = "usage: ds-launch lr JOB [-n STEPS]\n"
                           "\n"
                           "Prints the learning rate of every step, and the momentum where it cycles, as columns.\n"
                           "\n"
                           "  -n STEPS  so many steps; default: run.steps, else scheduler.params.total_num_steps\n"
                           "  --help    this text";

int train_lr_main(int argc, char **argv)
{
    struct err err = ERR_INIT;
    int64_t steps = 0;

    if (parse_help(argc, argv, help))
        return 0;
    if ((argc != 2 && argc != 4) || (argc == 4 && strcmp(argv[2], "-n"))) {
        log_error("%s", usage);
        return 2;
    }
    if (argc == 4 && parse_i64(argv[3], 1, INT64_MAX, &steps) < 0) {
        log_error("-n %s: give a whole number from 1", argv[3]);
        return 2;
    }
    if (print_rates(argv[1], steps, &err) < 0) {
        log_error("%s", err.text);
        return err_exit_code(&err);
    }
    return 0;
}
