/* ds-rank sample: see sample.h. The model is rebuilt from the checkpoint's own settings; only masters are
 * read. Tokens are bytes: a model over another vocabulary prints token ids. */
#include "engine/train/sample.h"

#include "engine/base/buf.h"
#include "engine/base/log.h"
#include "engine/base/parse.h"
#include "engine/base/rng.h"
#include "engine/ckpt/ckpt.h"
#include "engine/train/exec.h"
#include "engine/train/setup.h"
#include "engine/train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sampler {
    const char *path, *prompt;
    int64_t tokens, top_k, seed;
    double temperature;
    struct setup *setup;
    struct device *dev;
    float *master;
    void *weight;
    struct exec *exec;
    struct ds_scalars scalars;
    int32_t *history; /* prompt and what was written */
    int64_t n;
};

static const char usage[] =
    "usage: ds-launch sample CKPT [--prompt TEXT] [--tokens N] [--temperature X] [--top-k K] [--seed S]";
static const char help[] =
    "usage: ds-launch sample [OPTION...] CKPT\n"
    "\n"
    "Prints the prompt and what the model of a checkpoint (a step, ckpt or run folder) writes behind it.\n"
    "\n"
    "  --prompt TEXT      what it goes on from (default: a line end)\n"
    "  --tokens N         so many tokens, from 1 (default 400)\n"
    "  --temperature X    from 0, which takes the likeliest token, to wild (default 0.8)\n"
    "  --top-k K          choose among the K likeliest tokens; 0: among all (default 0)\n"
    "  --seed S           another number writes another text, from 0 (default 1)\n"
    "  --help             this text";

enum { MOST = 1 << 30 };

static int read_number(const char *flag, const char *v, int64_t lo, int64_t hi, int64_t *out, struct err *err)
{
    if (!parse_i64(v, lo, hi, out))
        return 0;
    return err_set(err, ERR_INPUT, "%s %s: give a whole number from %lld to %lld", flag, v, (long long)lo,
                   (long long)hi);
}

static int parse_args(struct sampler *s, int argc, char **argv, struct err *err)
{
    *s = (struct sampler){.prompt = "\n", .tokens = 400, .top_k = 0, .seed = 1, .temperature = 0.8};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
        int rc = 0;

        if (a[0] != '-' && !s->path) {
            s->path = a;
            continue;
        }
        if (a[0] != '-' || !v)
            return err_set(err, ERR_INPUT, "'%s' is not understood or lacks its value; %s", a, usage);
        i++;
        if (!strcmp(a, "--prompt"))
            s->prompt = v;
        else if (!strcmp(a, "--tokens"))
            rc = read_number(a, v, 1, MOST, &s->tokens, err);
        else if (!strcmp(a, "--top-k"))
            rc = read_number(a, v, 0, MOST, &s->top_k, err);
        else if (!strcmp(a, "--seed"))
            rc = read_number(a, v, 0, INT64_MAX, &s->seed, err);
        else if (!strcmp(a, "--temperature"))
            rc = parse_f64(v, &s->temperature) < 0 || s->temperature < 0
                     ? err_set(err, ERR_INPUT, "%s %s: give a number from 0", a, v)
                     : 0;
        else
            return err_set(err, ERR_INPUT, "unknown option %s; see ds-launch sample --help", a);
        if (rc)
            return rc;
    }
    return s->path ? 0 : err_set(err, ERR_INPUT, "%s", usage);
}

/* The masters of every tensor, placed as the parameter table says. */
static int load_weights(struct sampler *s, struct ckpt *c, struct err *err)
{
    const struct param_table *t = s->setup->table;
    struct ckpt_entry *e = xcalloc((size_t)t->ntensors + 1, sizeof *e);
    int n = 0, rc;

    for (int f = 0; f < t->nflats; f++)
        for (int i = t->flat[f].first; i < t->flat[f].first + t->flat[f].ntensors; i++) {
            const struct param_tensor *x = &t->tensor[i];

            e[n++] = (struct ckpt_entry){.name = x->name, .kind = "w", .ndim = x->cols > 1 ? 2 : 1,
                                         .shape = {x->rows, x->cols > 1 ? x->cols : 0},
                                         .count = x->numel,
                                         .data = s->master + t->flat[f].base + x->offset};
        }
    rc = ckpt_read(c, e, n, err);
    free(e);
    if (!rc && s->weight != s->master)
        kernels_cpu.cast(s->weight, s->setup->dtype, s->master, DS_F32, (int64_t)t->total, NULL);
    return rc;
}

static int build(struct sampler *s, struct err *err)
{
    struct settings_rows rows = {0};
    struct exec_memory mem = {0};
    struct ckpt *c = NULL;
    int rc = ckpt_open(&c, s->path, err);

    if (rc)
        return rc;
    if (ckpt_passed_over(c))
        log_warn("%s; the text is of %s", ckpt_passed_over(c), ckpt_path(c));
    rc = settings_read(&rows, ckpt_path(c), ckpt_meta(c)->config, strlen(ckpt_meta(c)->config), err);
    if (!rc)
        rc = setup_create(&s->setup, &rows, 1, 0, NULL, err);
    settings_rows_clear(&rows);
    if (!rc) {
        train_threads(&s->setup->job, 1);
        rc = device_cpu.create(&s->dev, 0, err);
    }
    if (!rc) {
        size_t total = s->setup->table->total;

        s->master = xcalloc(total, sizeof *s->master);
        s->weight = s->setup->dtype == DS_F32 ? s->master
                                              : xcalloc(total, ds_dtype_bytes(s->setup->dtype));
        rc = load_weights(s, c, err);
    }
    mem = (struct exec_memory){.weight = s->weight, .dtype = s->setup ? s->setup->dtype : DS_F32};
    if (!rc)
        rc = exec_create(&s->exec, s->setup->model, s->setup->order, s->setup->table, &mem, &kernels_cpu,
                         s->dev, err);
    ckpt_close(c);
    return rc;
}

static void clear(struct sampler *s)
{
    exec_destroy(s->exec);
    if (s->weight != s->master)
        free(s->weight);
    free(s->master);
    free(s->history);
    setup_destroy(s->setup);
    if (s->dev)
        s->dev->ops->destroy(s->dev);
}

/* ---- choosing a token ---- */

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

static float threshold(const float *logit, int64_t n, int64_t top_k)
{
    float *sorted = xmalloc((size_t)n * sizeof *sorted), cut;

    memcpy(sorted, logit, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, descending);
    cut = sorted[top_k - 1];
    free(sorted);
    return cut;
}

static int32_t choose(const struct sampler *s, const float *logit, int64_t n)
{
    float cut = s->top_k > 0 && s->top_k < n ? threshold(logit, n, s->top_k) : -INFINITY;
    double sum = 0, u;
    int32_t best = 0;

    for (int64_t i = 1; i < n; i++)
        if (logit[i] > logit[best])
            best = (int32_t)i;
    if (s->temperature == 0)
        return best;
    for (int64_t i = 0; i < n; i++)
        if (logit[i] >= cut)
            sum += exp((logit[i] - logit[best]) / s->temperature);
    u = sum * rng_uniform(rng_word((uint64_t)s->seed, 0, rng_site("sample"), (uint64_t)s->n));
    for (int64_t i = 0; i < n; i++)
        if (logit[i] >= cut) {
            u -= exp((logit[i] - logit[best]) / s->temperature);
            if (u < 0)
                return (int32_t)i;
        }
    return best;
}

/* ---- writing ---- */

static void print_token(const struct sampler *s, int32_t token)
{
    if (s->setup->model->vocab <= 257)
        putchar(token < 256 ? token : '\n');
    else
        printf("%d ", token);
}

/* Appends n tokens of the history from `from` to the caches and gives the last row of logits. */
static int feed(struct sampler *s, int64_t from, int64_t n, int64_t at, int64_t max,
                const float **logit, struct err *err)
{
    int32_t *pos = xcalloc((size_t)n, sizeof *pos), *doc = xcalloc((size_t)n, sizeof *doc);
    uint64_t sample = 0;
    struct ds_batch b = {1, n, s->history + from, NULL, pos, doc, &sample};
    struct ds_tensor out;
    int rc;

    for (int64_t i = 0; i < n; i++)
        pos[i] = (int32_t)(at + i);
    rc = exec_decode(s->exec, &b, &s->scalars, max, &out, err);
    if (!rc)
        *logit = (const float *)out.data + (n - 1) * s->setup->model->vocab;
    free(pos);
    free(doc);
    return rc;
}

/* The prompt's bytes are its tokens, so the model must have them. */
static int check_prompt(const struct sampler *s, struct err *err)
{
    int64_t vocab = s->setup->model->vocab;

    for (const char *p = s->prompt; *p; p++)
        if ((unsigned char)*p >= vocab)
            return err_set(err, ERR_INPUT,
                           "--prompt: byte %d is no token of this model, whose vocabulary ends at %lld "
                           "(it was trained on a token file, not on text); use bytes below %lld",
                           (unsigned char)*p, (long long)vocab - 1, (long long)vocab);
    return 0;
}

/* When the model's longest sample is full, the later half is fed again from position 0. */
static int write_text(struct sampler *s, struct err *err)
{
    int64_t max = s->setup->model->max_T ? s->setup->model->max_T : s->setup->job.seq_len;
    int64_t have = (int64_t)strlen(s->prompt), in_cache = 0, from = 0;
    const float *logit = NULL;

    s->history = xcalloc((size_t)(have + s->tokens + 1), sizeof *s->history);
    for (; s->n < have; s->n++) {
        s->history[s->n] = (unsigned char)s->prompt[s->n];
        print_token(s, s->history[s->n]);
    }
    while (s->n < have + s->tokens) {
        if (in_cache + (s->n - from) > max || !in_cache) {
            exec_decode_reset(s->exec);
            in_cache = 0;
            from = s->n > max ? s->n - (max + 1) / 2 : 0;
        }
        if (feed(s, from, s->n - from, in_cache, max, &logit, err) < 0)
            return -1;
        in_cache += s->n - from;
        from = s->n;
        s->history[s->n] = choose(s, logit, s->setup->model->vocab);
        print_token(s, s->history[s->n]);
        s->n++;
    }
    putchar('\n');
    return 0;
}

int sample_main(int argc, char **argv)
{
    struct sampler s;
    struct err err = ERR_INIT;
    int rc;

    if (parse_help(argc, argv, help))
        return 0;
    rc = parse_args(&s, argc, argv, &err);

    if (!rc && !s.prompt[0])
        rc = err_set(&err, ERR_INPUT, "--prompt is empty; give at least one character");
    if (!rc)
        rc = build(&s, &err);
    if (!rc)
        rc = check_prompt(&s, &err);
    if (!rc)
        rc = write_text(&s, &err);
    clear(&s);
    if (fflush(stdout) || ferror(stdout))
        rc = err_set(&err, ERR_JOB_IO, "writing the text: %m");
    if (rc)
        log_error("%s", err.text);
    return rc ? err_exit_code(&err) : 0;
}
