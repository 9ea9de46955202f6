/* Which checkpoint of a folder is opened: what `latest` names, or the whole one of the highest step. See ckpt.h. */
#include "engine/base/buf.h"
#include "engine/ckpt/ckpt.h"
#include "engine/ckpt/files.h"
#include "engine/ckpt/reader.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The step folder that `latest` names. */
static int open_latest(struct ckpt **out, const char *dir, struct err *err)
{
    char *path = xasprintf("%s/latest", dir), *step_path;
    struct buf text = BUF_INIT;
    int64_t step;
    int rc = file_read(path, 64, &text, err);

    if (rc == 0) {
        while (text.len && strchr("\r\n ", text.data[text.len - 1]))
            text.data[--text.len] = 0;
        if (step_parse(buf_str(&text), &step) < 0)
            rc = err_set(err, ERR_INPUT_FILE, "%s does not name a step folder", path);
    }
    if (rc == 0) {
        step_path = xasprintf("%s/step-%lld", dir, (long long)step);
        rc = ckpt_open_step(out, step_path, err);
        free(step_path);
    }
    buf_clear(&text);
    free(path);
    return rc;
}

static int by_step(const void *a, const void *b)
{
    int64_t x = ((const struct step_folder *)a)->step, y = ((const struct step_folder *)b)->step;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* The whole one of the highest step below. */
static int open_below(struct ckpt **out, const char *dir, int64_t below)
{
    struct step_folder *list;
    int n = step_list(dir, &list), rc = -1;

    if (n)
        qsort(list, (size_t)n, sizeof *list, by_step);
    for (int i = 0; rc < 0 && i < n; i++) {
        char *path = list[i].step < below ? xasprintf("%s/step-%lld", dir, (long long)list[i].step) : NULL;

        rc = path ? ckpt_open_step(out, path, NULL) : -1;
        free(path);
    }
    free(list);
    return rc;
}

/* What `latest` names, else the whole one of the highest step; then the reason is kept beside it. */
static int open_newest(struct ckpt **out, const char *dir, struct err *err)
{
    struct err why = ERR_INIT;
    int rc = open_latest(out, dir, &why);

    if (rc == 0)
        return 0;
    rc = open_below(out, dir, INT64_MAX);
    if (rc == 0)
        (*out)->passed_over = xstrdup(why.text);
    else
        err_set(err, why.code, "%s", why.text);
    return rc;
}

int ckpt_exists(const char *dir)
{
    char *latest = xasprintf("%s/latest", dir);
    struct step_folder *list = NULL;
    int there = access(latest, F_OK) == 0 || step_list(dir, &list) > 0;

    free(list);
    free(latest);
    return there;
}

int ckpt_open_before(struct ckpt **out, const char *path, int64_t step, struct err *err)
{
    char *inner = xasprintf("%s/ckpt", path);
    struct stat st;
    int rc;

    *out = NULL;
    rc = open_below(out, stat(inner, &st) == 0 && S_ISDIR(st.st_mode) ? inner : path, step);
    if (rc < 0)
        err_set(err, ERR_INPUT_FILE, "%s holds no whole checkpoint of a step before %lld", path, (long long)step);
    free(inner);
    return rc;
}

const char *ckpt_passed_over(const struct ckpt *c)
{
    return c->passed_over;
}

int ckpt_open(struct ckpt **out, const char *path, struct err *err)
{
    char *manifest = xasprintf("%s/manifest.json", path), *inner = xasprintf("%s/ckpt", path);
    struct step_folder *list = NULL;
    struct stat st;
    int rc;

    *out = NULL;
    if (stat(path, &st) < 0)
        rc = err_set(err, ERR_INPUT_FILE, "checkpoint %s: %m; give a run folder, its ckpt folder or a step in it",
                     path);
    else if (!S_ISDIR(st.st_mode))
        rc = err_set(err, ERR_INPUT_FILE,
                     "checkpoint %s is not a folder; give a step folder, a ckpt folder or a run "
                     "folder",
                     path);
    else if (access(manifest, F_OK) == 0)
        rc = ckpt_open_step(out, path, err);
    else if (stat(inner, &st) == 0 && S_ISDIR(st.st_mode))
        rc = open_newest(out, inner, err);
    else if (step_list(path, &list) > 0)
        rc = open_newest(out, path, err);
    else
        rc = err_set(err, ERR_INPUT_FILE,
                     "%s holds no checkpoint: neither manifest.json nor step folders; give a run folder, its "
                     "ckpt folder or a step in it", path);
    free(list);
    free(manifest);
    free(inner);
    return rc;
}
