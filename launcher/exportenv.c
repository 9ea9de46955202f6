/* The environment that is carried: see exportenv.h. Values are bytes, never words of a shell. */
#include "launcher/exportenv.h"

#include "engine/base/buf.h"
#include "engine/base/parse.h"
#include "launcher/rankenv.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names and patterns that go without being asked for. */
static const char *const carried[] = {
    "PATH", "LD_LIBRARY_PATH", "PYTHON*", "MV2*", "UCX*", "MLFLOW*", "NCCL*", "OMP_*", "KMP_*", "CUDA_*",
    "TORCH_*", "HF_*", "WANDB_*", "DS_*", "VIRTUAL_ENV", "DLTS_*", "NEBULA_*", "AML_RUN_ID",
    "AZUREML_*", "FC_TASKROLE_NAME", "FC_TASK_INDEX", "MASTER_HOST", "LOCAL_HOST", "GLOO_*", "TP_*",
    "MKL_*", "OPENBLAS_*", "LANG", "LC_*", "TERM", "TZ", NULL,
};

static int in(const char *const *patterns, const char *name)
{
    for (; *patterns; patterns++)
        if (glob_match(*patterns, name))
            return 1;
    return 0;
}

void envlist_set(struct envlist *e, const char *item)
{
    size_t n = strcspn(item, "=");
    int i;

    for (i = 0; i < e->n; i++)
        if (strcspn(e->item[i], "=") == n && !strncmp(e->item[i], item, n)) {
            free(e->item[i]);
            e->item[i] = xstrdup(item);
            return;
        }
    ARRAY_GROW(e->item, e->n, e->cap);
    e->item[e->n++] = xstrdup(item);
}

void envlist_clear(struct envlist *e)
{
    int i;

    for (i = 0; i < e->n; i++)
        free(e->item[i]);
    free(e->item);
    *e = (struct envlist){0};
}

static int is_name(const char *s, size_t n)
{
    size_t i;

    if (!n || isdigit((unsigned char)s[0]))
        return 0;
    for (i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && s[i] != '_')
            return 0;
    return 1;
}

/* The value in p..end into out: quotes removed, a comment behind a blank cut off. -1: a quote is open. */
static int unquote(const char *p, const char *end, struct buf *out)
{
    while (p < end) {
        char c = *p++;

        if (c == '\'' || c == '"') {
            for (; p < end && *p != c; p++) {
                if (c == '"' && *p == '\\' && p + 1 < end && strchr("\"\\$`", p[1]))
                    p++;
                buf_addc(out, *p);
            }
            if (p++ == end)
                return -1;
        } else if (c == '\\' && p < end) {
            buf_addc(out, *p++);
        } else if (c == '#' && out->len && isspace((unsigned char)out->data[out->len - 1])) {
            break;
        } else {
            buf_addc(out, c);
        }
    }
    return 0;
}

static int parse_line(struct envlist *e, const char *name, int number, const char *p, const char *end,
                      struct err *err)
{
    const char *eq;
    struct buf item = BUF_INIT, value = BUF_INIT;
    int rc = 0;

    while (p < end && isspace((unsigned char)*p))
        p++;
    while (end > p && isspace((unsigned char)end[-1]))
        end--;
    if (p == end || *p == '#')
        return 0;
    if (end - p > 7 && !strncmp(p, "export", 6) && isblank((unsigned char)p[6]))
        for (p += 7; p < end && isblank((unsigned char)*p);)
            p++;
    eq = memchr(p, '=', (size_t)(end - p));
    if (!eq || !is_name(p, (size_t)(eq - p)))
        return err_set(err, ERR_INPUT, "%s:%d: '%.*s' is not NAME=VALUE; write it so, or put # in front",
                       name, number, (int)(end - p > 80 ? 80 : end - p), p);
    buf_add(&item, p, (size_t)(eq - p) + 1);
    if (unquote(eq + 1, end, &value))
        rc = err_set(err, ERR_INPUT, "%s:%d: a quote is opened and not closed", name, number);
    while (value.len && end[-1] != '\'' && end[-1] != '"' &&
           isspace((unsigned char)value.data[value.len - 1]))
        value.data[--value.len] = 0;
    buf_adds(&item, buf_str(&value));
    if (!rc)
        envlist_set(e, buf_str(&item));
    buf_clear(&item);
    buf_clear(&value);
    return rc;
}

int envlist_parse(struct envlist *e, const char *name, const char *text, struct err *err)
{
    int number = 1;

    for (; *text; number++) {
        size_t n = strcspn(text, "\n");

        if (parse_line(e, name, number, text, text + n, err))
            return -1;
        text += n + (text[n] == '\n');
    }
    return 0;
}

/* *found is set when it is there. */
static int read_file(struct envlist *e, const char *folder, const char *file, int *found, struct err *err)
{
    char *path = *file == '/' ? xstrdup(file) : xasprintf("%s/%s", folder, file), part[4096];
    FILE *f = fopen(path, "re");
    struct buf text = BUF_INIT;
    size_t n;
    int rc = 0;

    *found |= f != NULL;
    if (!f && errno != ENOENT) {
        rc = err_set(err, ERR_INPUT_FILE, "cannot read the environment file %s: %m", path);
    } else if (f) {
        while ((n = fread(part, 1, sizeof part, f)) > 0)
            buf_add(&text, part, n);
        if (memchr(buf_str(&text), 0, text.len))
            rc = err_set(err, ERR_INPUT_FILE, "%s is no text file", path);
        else
            rc = envlist_parse(e, path, buf_str(&text), err);
    }
    if (f)
        fclose(f);
    buf_clear(&text);
    free(path);
    return rc;
}

static int add_exports(struct envlist *e, char *const *environment, char *const *exports, int n,
                       struct err *err)
{
    int i, k;

    for (i = 0; i < n; i++) {
        const char *w = exports[i];
        size_t len = strcspn(w, "=");

        if (!strcmp(w, "NONE") || !strcmp(w, "ALL"))
            continue;
        if (w[len]) {
            if (!is_name(w, len))
                return err_set(err, ERR_INPUT, "--export %s: no variable has such a name", w);
            envlist_set(e, w);
            continue;
        }
        for (k = 0; environment[k]; k++) {
            char *name = xstrndup(environment[k], strcspn(environment[k], "="));

            if (glob_match(w, name) && !in(rankenv_own, name))
                envlist_set(e, environment[k]);
            free(name);
        }
    }
    return 0;
}

static int has_word(char *const *exports, int n, const char *word)
{
    int i;

    for (i = 0; i < n; i++)
        if (!strcmp(exports[i], word))
            return 1;
    return 0;
}

static void add_carried(struct envlist *e, char *const *environment, int all)
{
    static const char *const fabric[] = {"NCCL_IB_HCA", "UCX_NET_DEVICES", NULL};
    int k, slurm = 0, aisc = 0; /* AISC's nodes each have their own devices */

    for (k = 0; environment[k]; k++) {
        slurm |= !strncmp(environment[k], "SLURM_JOB_ID=", 13);
        aisc |= !strncmp(environment[k], "AISC_JOB_NAME=", 14);
    }
    for (k = 0; environment[k]; k++) {
        char *name = xstrndup(environment[k], strcspn(environment[k], "="));

        if (!in(rankenv_own, name) && strcmp(name, "CUDA_VISIBLE_DEVICES") && !(aisc && in(fabric, name)) &&
            (all || in(carried, name) || (slurm && !strncmp(name, "SLURM_", 6))))
            envlist_set(e, environment[k]);
        free(name);
    }
}

/* The working directory in front of PYTHONPATH, so that a script finds its neighbours on every node. */
static void add_pythonpath(struct envlist *e, const char *cwd)
{
    char *item = NULL;
    int i;

    for (i = 0; i < e->n; i++)
        if (!strncmp(e->item[i], "PYTHONPATH=", 11) && e->item[i][11])
            item = xasprintf("PYTHONPATH=%s:%s", cwd, e->item[i] + 11);
    if (!item)
        item = xasprintf("PYTHONPATH=%s", cwd);
    envlist_set(e, item);
    free(item);
}

static const char *value_of(char *const *environment, const char *name)
{
    size_t n = strlen(name);

    for (; *environment; environment++)
        if (!strncmp(*environment, name, n) && (*environment)[n] == '=')
            return *environment + n + 1;
    return NULL;
}

/* The entries of x behind those of e, in place of what e has by these names. x is cleared. */
static void append(struct envlist *e, struct envlist *x)
{
    int i, k, n;

    for (i = 0; i < x->n; i++) {
        size_t len = strcspn(x->item[i], "=");

        for (k = n = 0; k < e->n; k++)
            if (strcspn(e->item[k], "=") == len && !strncmp(e->item[k], x->item[i], len))
                free(e->item[k]);
            else
                e->item[n++] = e->item[k];
        e->n = n;
        ARRAY_GROW(e->item, e->n, e->cap);
        e->item[e->n++] = x->item[i];
    }
    e->late = x->n;
    free(x->item);
}

int envlist_build(struct envlist *e, char *const *environment, const char *home, const char *cwd,
                  char *const *exports, int nexports, int python, struct err *err)
{
    const char *file = value_of(environment, "DS_ENV_FILE");
    struct envlist own = {0};
    int i, rc = 0, given = file && *file, found = 0;

    for (i = 0; rankenv_own[i]; i++)
        envlist_set(e, rankenv_own[i]);
    if (!has_word(exports, nexports, "NONE")) {
        add_carried(e, environment, has_word(exports, nexports, "ALL"));
        if (python)
            add_pythonpath(e, cwd);
        if (!given)
            file = ".deepspeed_env";
        if (home && *file != '/')
            rc = read_file(&own, home, file, &found, err);
        if (!rc && (!home || strcmp(home, cwd) || *file == '/'))
            rc = read_file(&own, cwd, file, &found, err);
        if (!rc && given && !found)
            rc = err_set(err, ERR_INPUT_FILE, "DS_ENV_FILE=%s: the file is not there%s; unset the variable or name "
                         "another", file, *file == '/' ? "" : ", neither in the home nor in the working folder");
    }
    if (!rc)
        rc = add_exports(&own, environment, exports, nexports, err);
    append(e, &own);
    return rc;
}

const char *envlist_unset(char *const *environment, char *const *exports, int n)
{
    int i;

    for (i = 0; i < n; i++)
        if (!strpbrk(exports[i], "=*?[") && strcmp(exports[i], "ALL") && strcmp(exports[i], "NONE") &&
            !value_of(environment, exports[i]))
            return exports[i];
    return NULL;
}
