/* The table of optimizers: defaults, and keys that one has no use for. Their arithmetic: tests/kernels. */
#include "engine/optim/optim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Each optimizer has its own defaults, and refuses what it has no use for. */
static void optimizers(void **state)
{
    static const struct {
        const char *type, *params, *says;
        double beta2, eps;
    } cases[] = {
        {"AdamW", "", NULL, 0.999, 1e-8},
        {"lion", "", NULL, 0.99, 0},
        {"Lion", ", \"betas\": [0.9, 0.95]", NULL, 0.95, 0},
        {"Adagrad", "", NULL, 0, 1e-10},
        {"SGD", ", \"momentum\": 0.9, \"nesterov\": true", NULL, 0, 0},
        {"SGD", ", \"betas\": [0.9, 0.95]", "betas: the optimizer SGD has no such parameter", 0, 0},
        {"SGD", ", \"nesterov\": true", "nesterov needs optimizer.params.momentum", 0, 0},
        {"AdamW", ", \"momentum\": 0.9", "momentum: the optimizer AdamW has no", 0, 0},
        {"Lamb", ", \"min_coeff\": 2, \"max_coeff\": 1", "exchange them", 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = xasprintf("{\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 1%s}}}", cases[i].type,
                               cases[i].params);
        struct settings_rows rows = {0};
        struct settings s;
        struct settings *tables[1] = {&s};
        struct err err = ERR_INIT;
        struct job job;

        settings_init(&s, job_table, job_table_n, &job);
        assert_int_equal(settings_read(&rows, "f", text, strlen(text), &err), 0);
        assert_int_equal(settings_apply(tables, 1, &rows, NULL, NULL, &err), 0);
        assert_int_equal(optim_defaults(&job, &s, &err), cases[i].says ? -1 : 0);
        if (cases[i].says)
            assert_non_null(strstr(err.text, cases[i].says));
        else
            assert_true(job.betas.v[1] == cases[i].beta2 && job.eps == cases[i].eps);
        settings_clear(&s);
        settings_rows_clear(&rows);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers),
    };

    return cmocka_run_group_tests_name("optim", tests, NULL, NULL);
}
