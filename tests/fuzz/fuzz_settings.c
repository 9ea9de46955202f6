/* Any bytes as a job file: rows and a struct, or one error; what was accepted survives print and
 * read. */
#include "engine/base/job.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static const struct settings_row *find(const struct settings_rows *rows, const char *path)
{
    for (int i = 0; i < rows->n; i++)
        if (strcmp(rows->row[i].path, path) == 0)
            return &rows->row[i];
    return NULL;
}

static void read_again(const struct settings_rows *rows)
{
    struct settings_rows again = {0};
    struct err err = ERR_INIT;
    struct buf text = BUF_INIT;

    settings_rows_print(rows, &text);
    LAW(settings_read(&again, "again", buf_str(&text), text.len, &err) == 0);
    LAW(again.n == rows->n);
    for (int i = 0; i < rows->n; i++) {
        const struct settings_row *r = find(&again, rows->row[i].path);

        LAW(r && strcmp(r->value, rows->row[i].value) == 0);
    }
    settings_rows_clear(&again);
    buf_clear(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct settings_rows rows = {0};
    struct job job;
    struct settings set, *tables[] = {&set};
    struct err err = ERR_INIT;
    struct buf warn = BUF_INIT;

    settings_init(&set, job_table, job_table_n, &job);
    if (settings_read(&rows, "f", (const char *)data, n, &err) < 0)
        LAW(err.code != ERR_OK && *err.text);
    else if (settings_apply(tables, 1, &rows, "model.", &warn, &err) == 0)
        read_again(&rows);
    else
        LAW(err.code == ERR_INPUT && *err.text);
    settings_hash(&set);
    job_batch(&job, &set, 3, &err);
    settings_rows_clear(&rows);
    settings_clear(&set);
    buf_clear(&warn);
    return 0;
}
