/* Where a run begins: which checkpoint it goes on from, and whether that is of the same run. Asked by `ds-rank check`
 * before anything is started, and by every rank. */
#include "engine/train/train.h"

#include "engine/base/buf.h"
#include "engine/ckpt/ckpt.h"

#include <stdlib.h>
#include <string.h>

char *train_origin(const struct job *job)
{
    char *dir;
    int there;

    if (!job->resume || strcmp(job->resume, "auto"))
        return job->resume ? xstrdup(job->resume) : NULL;
    dir = xasprintf("%s/ckpt", job->run_dir ? job->run_dir : ".");
    there = ckpt_exists(dir);
    free(dir);
    return there ? xstrdup(job->run_dir ? job->run_dir : ".") : NULL;
}

/* "PATH (OLD there, NEW here)" for every IDENTITY setting of a table that differs. */
static void add_differences(const struct settings *old, const struct settings *new, struct buf *out)
{
    struct buf a = BUF_INIT, b = BUF_INIT;

    for (int i = 0; i < new->n; i++) {
        if (!(new->table[i].flags & SETTING_IDENTITY))
            continue;
        buf_reset(&a);
        buf_reset(&b);
        settings_value(old, i, &a);
        settings_value(new, i, &b);
        if (strcmp(buf_str(&a), buf_str(&b)))
            buf_addf(out, "%s%s (%s there, %s here)", out->len ? ", " : "", new->table[i].path, buf_str(&a),
                     buf_str(&b));
    }
    buf_clear(&a);
    buf_clear(&b);
}

static int differ(const struct setup *s, const struct ckpt *c, struct err *err)
{
    const char *config = ckpt_meta(c)->config;
    struct settings_rows rows = {0};
    struct setup *old = NULL;
    struct buf names = BUF_INIT;
    int rc = settings_read(&rows, ckpt_path(c), config, strlen(config), err);

    if (!rc)
        rc = setup_create(&old, &rows, 1, 0, NULL, err);
    if (!rc)
        add_differences(&old->settings, &s->settings, &names);
    for (int i = 0; !rc && i < s->model->ntables; i++)
        for (int j = 0; j < old->model->ntables; j++)
            if (s->model->tables[i].table == old->model->tables[j].table)
                add_differences(&old->model->tables[j], &s->model->tables[i], &names);
    if (!rc)
        rc = err_set(err, ERR_INPUT,
                     "%s is of a different run: %s; use the same settings, or --init-from to take its weights only",
                     ckpt_path(c), names.len ? names.data : "its model has other layers");
    buf_clear(&names);
    setup_destroy(old);
    settings_rows_clear(&rows);
    return rc;
}

int train_same_run(const struct setup *s, const struct ckpt *c, struct err *err)
{
    if (ckpt_meta(c)->config_hash != setup_hash(s))
        return differ(s, c, err);
    if (ckpt_meta(c)->data_hash != data_hash(s->data))
        return err_set(err, ERR_INPUT,
                       "%s was trained on other data files; give the same ones, or --init-from to take its "
                       "weights only",
                       ckpt_path(c));
    return 0;
}
