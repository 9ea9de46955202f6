/* Reading a job file with its preset, and the batch triangle. See job.h. */
#include "engine/base/job.h"
#include "engine/base/parse.h"
#include "engine/base/settings_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder a path is in, with its slash; "" when it has none. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return xstrndup(path, slash ? (size_t)(slash - path + 1) : 0);
}

static char *program_folder(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    if (n <= 0)
        return xstrdup("");
    path[n] = 0;
    return folder_of(path);
}

/* Takes ownership of path: returns it when such a file is there, else frees it and returns NULL. */
static char *if_readable(char *path)
{
    if (access(path, R_OK) == 0)
        return path;
    free(path);
    return NULL;
}

/* The preset's file, owned; NULL when there is none. */
static char *find_preset(const char *preset, const char *job_path)
{
    /* a build in the source tree, one in a folder of it, an installed tree, from bin or from libexec */
    static const char *const beside[] = {"", "../", "../share/ds-launch/", "../../share/ds-launch/"};
    const char *templates = getenv("DS_TEMPLATES");
    char *folder, *found = NULL;

    if (strchr(preset, '/') || glob_match("*.ini", preset)) {
        folder = folder_of(job_path);
        found = if_readable(*preset == '/' ? xstrdup(preset) : xasprintf("%s%s", folder, preset));
        free(folder);
        return found ? found : if_readable(xstrdup(preset));
    }
    if (templates)
        return if_readable(xasprintf("%s/models/%s.ini", templates, preset));
    folder = program_folder();
    for (size_t i = 0; !found && i < sizeof beside / sizeof *beside; i++)
        found = if_readable(xasprintf("%s%stemplates/models/%s.ini", folder, beside[i], preset));
    if (!found)
        found = if_readable(xasprintf("%s/templates/models/%s.ini", PKGDATADIR, preset));
    free(folder);
    return found;
}

static int read_preset(struct settings_rows *rows, const struct settings_row *preset,
                       const char *job_path, struct err *err)
{
    char *path = find_preset(preset->value, job_path);
    const struct settings_row *nested;
    int rc;

    if (!path)
        return err_set(
            err, ERR_INPUT_FILE,
            "%s: model.preset = %s: no such file, and no %s.ini among the installed models; "
            "give a path, or set DS_TEMPLATES to the templates folder",
            preset->where, preset->value, preset->value);
    rc = settings_read_file(rows, path, err);
    nested = rows_find(rows, "model.preset");
    if (rc == 0 && nested)
        rc =
            err_set(err, ERR_INPUT, "%s: model.preset inside a preset; put all of it into one file",
                    nested->where);
    free(path);
    return rc;
}

int job_read(struct settings_rows *rows, const char *path, struct err *err)
{
    struct settings_rows own = {0};
    const struct settings_row *preset;
    int rc = settings_read_file(&own, path, err);

    preset = rows_find(&own, "model.preset");
    if (rc == 0 && preset && *preset->value)
        rc = read_preset(rows, preset, path, err);
    for (int i = 0; rc == 0 && i < own.n; i++)
        settings_rows_add(rows, own.row[i].path, own.row[i].value, own.row[i].where);
    settings_rows_clear(&own);
    return rc;
}

/* ---- batch triangle ---- */

struct triangle {
    int64_t train, micro, acc, world; /* 0: not given */
};

/* a * b * c, INT64_MAX when that does not fit. */
static int64_t product(int64_t a, int64_t b, int64_t c)
{
    int64_t v;

    if (__builtin_mul_overflow(a, b, &v) || __builtin_mul_overflow(v, c, &v))
        return INT64_MAX;
    return v;
}

/* The multiple of step nearest to v, at least step. */
static int64_t nearest_multiple(int64_t v, int64_t step)
{
    int64_t k = v / step;

    if (v % step > step / 2 || k == 0)
        k++;
    return product(k, step, 1);
}

/* The combination nearest to what was asked. All three given: accumulation bends first, for it
 * changes nothing but the split; else the total. */
static struct triangle nearest_triangle(struct triangle t)
{
    struct triangle n = t;

    if (t.micro && t.acc) {
        int64_t per_pass = product(t.micro, t.world, 1);

        if (t.train % per_pass == 0)
            n.acc = t.train / per_pass;
        else
            n.train = product(t.micro, t.acc, t.world);
    } else if (t.micro) {
        n.train = nearest_multiple(t.train, product(t.micro, t.world, 1));
        n.acc = n.train / product(t.micro, t.world, 1);
    } else {
        n.acc = t.acc ? t.acc : 1;
        n.train = nearest_multiple(t.train, product(n.acc, t.world, 1));
        n.micro = n.train / product(n.acc, t.world, 1);
    }
    return n;
}

static struct triangle fill(struct triangle t)
{
    if (t.train && t.micro && !t.acc)
        t.acc = t.train / product(t.micro, t.world, 1);
    else if (t.train && !t.micro) {
        t.acc = t.acc ? t.acc : 1;
        t.micro = t.train / product(t.acc, t.world, 1);
    } else if (!t.train) {
        t.acc = t.acc ? t.acc : 1;
        t.train = product(t.micro, t.acc, t.world);
    }
    return t;
}

static int64_t given(const struct settings *s, const char *path, int64_t v)
{
    return !s || settings_given(s, path) ? v : 0;
}

int job_batch(struct job *job, const struct settings *s, int64_t data_size, struct err *err)
{
    struct triangle asked = {given(s, "train_batch_size", job->train_batch_size),
                             given(s, "train_micro_batch_size_per_gpu", job->micro_batch_size),
                             given(s, "gradient_accumulation_steps", job->accumulation), data_size};
    struct triangle t = asked, near;
    char word[3][24];

    if (!t.train && !t.micro)
        return err_set(
            err, ERR_INPUT,
            "the batch size is not given: set train_batch_size (samples per step over all "
            "ranks) or train_micro_batch_size_per_gpu (samples a rank takes at once)");
    t = fill(t);
    if (t.train == INT64_MAX)
        return err_set(
            err, ERR_INPUT,
            "train_micro_batch_size_per_gpu %lld x gradient_accumulation_steps %lld x %lld "
            "data ranks is too large",
            (long long)t.micro, (long long)t.acc, (long long)t.world);
    if (t.micro > 0 && t.acc > 0 && product(t.micro, t.acc, t.world) == t.train) {
        job->train_batch_size = t.train;
        job->micro_batch_size = t.micro;
        job->accumulation = t.acc;
        return 0;
    }
    near = nearest_triangle(asked);
    snprintf(word[0], sizeof word[0], "%lld", (long long)asked.train);
    snprintf(word[1], sizeof word[1], asked.micro ? "%lld" : "(not given)", (long long)asked.micro);
    snprintf(word[2], sizeof word[2], asked.acc ? "%lld" : "(not given)", (long long)asked.acc);
    return err_set(err, ERR_INPUT,
                   "train_batch_size %s is not train_micro_batch_size_per_gpu %s x "
                   "gradient_accumulation_steps %s x "
                   "%lld data ranks; nearest that is: %lld = %lld x %lld x %lld",
                   word[0], word[1], word[2], (long long)data_size, (long long)near.train,
                   (long long)near.micro, (long long)near.acc, (long long)near.world);
}
