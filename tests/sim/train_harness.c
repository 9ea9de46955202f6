/* See train_harness.h. */
#include "tests/sim/train_harness.h"
#include "engine/zero/zero_impl.h"

#include "engine/base/buf.h"
#include "engine/base/hash.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

char harness_dir[64], harness_text[96];

const char harness_job[] = "train_batch_size = 12\n"
                           "gradient_clipping = 1.0\n"
                           "[optimizer]\ntype = AdamW\n"
                           "[optimizer.params]\nlr = 3e-3\nweight_decay = 0.1\nbetas = 0.9, 0.95\n"
                           "[scheduler]\ntype = WarmupCosineLR\n"
                           "[scheduler.params]\nwarmup_num_steps = 4\ntotal_num_steps = 24\n"
                           "[model]\nn_layer = 2\nn_head = 4\nn_embd = 32\n"
                           "[data]\nseq_len = 16\nvalid_split = 0.1\n"
                           "[run]\nseed = 5\nthreads = 1\nsteps = 24\n";

/* Words of a small list in an order that a counter decides. */
int harness_begin(void **state)
{
    static const char *const word[] = {"the ", "king ", "and ", "water ", "said ", "of ", "light\n"};
    FILE *f;
    unsigned x = 1;

    strcpy(harness_dir, "/tmp/ds-test-ranks-XXXXXX");
    if (!mkdtemp(harness_dir))
        return -1;
    snprintf(harness_text, sizeof harness_text, "%s/text.txt", harness_dir);
    f = fopen(harness_text, "w");
    for (int i = 0; i < 4000; i++) {
        x = x * 1103515245u + 12345u;
        fputs(word[(x >> 16) % 7], f);
    }
    fclose(f);
    return 0;
}

int harness_end(void **state)
{
    char *command = xasprintf("rm -rf '%s'", harness_dir);
    int rc = system(command);

    free(command);
    return rc;
}

struct settings_rows harness_rows(const char *base, const char *more, const char *path, ...)
{
    struct settings_rows rows = {0};
    struct err err = ERR_INIT;
    va_list ap;

    if (settings_read(&rows, "base", base, strlen(base), &err) < 0 ||
        (more && settings_read(&rows, "more", more, strlen(more), &err) < 0))
        fail_msg("%s", err.text);
    settings_rows_add(&rows, "data.train", harness_text, "test");
    va_start(ap, path);
    for (; path; path = va_arg(ap, const char *))
        settings_rows_add(&rows, path, va_arg(ap, const char *), "test");
    va_end(ap);
    return rows;
}

struct settings_rows harness_with(const struct settings_rows *rows, const char *path, const char *value)
{
    struct settings_rows out = {0};

    for (int i = 0; i < rows->n; i++)
        settings_rows_add(&out, rows->row[i].path, rows->row[i].value, rows->row[i].where);
    settings_rows_add(&out, path, value, "test");
    return out;
}

/* ---- ranks ---- */

static void *rank_main(void *arg)
{
    struct harness_rank *r = arg;
    struct setup *s = NULL;
    struct train *t = NULL;

    r->rc = setup_create(&s, r->rows, r->boot->world, 1, NULL, &r->err);
    if (!r->rc)
        r->rc = train_create(&t, s, r->boot, NULL, &r->err);
    if (!r->rc)
        r->rc = r->body(t, r->arg, &r->err);
    train_destroy(t);
    setup_destroy(s);
    return NULL;
}

void harness_run_in(struct boot_world *w, struct harness_rank *r, int n)
{
    pthread_t *thread = xcalloc((size_t)n, sizeof *thread);

    for (int i = 0; i < n; i++) {
        r[i].boot = boot_world_rank(w, i);
        pthread_create(&thread[i], NULL, rank_main, &r[i]);
    }
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    free(thread);
}

void harness_run(struct harness_rank *r, int n, int nodes)
{
    struct boot_world *w = boot_world_create(n, nodes);

    harness_run_in(w, r, n);
    boot_world_destroy(w);
}

void harness_ended_well(const struct harness_rank *r, int n)
{
    for (int i = 0; i < n; i++)
        if (r[i].rc)
            fail_msg("rank %d of %d: %s", i, n, r[i].err.text);
}

/* ---- the curve of a run ---- */

/* The masters in this rank's slices at their place among all in table order, 0 elsewhere. */
static float *copy_masters(const struct train *t, struct result *r)
{
    const struct param_table *pt = t->setup->table;
    float *out = xcalloc(pt->numel + 1, sizeof *out);

    free(r->end);
    r->end = xcalloc((size_t)pt->ntensors, sizeof *r->end);
    r->n = 0;
    for (int i = 0; i < pt->ntensors; i++) /* the gradient of a key's bias is zero but for rounding, which Adam turns
                                            * into motion */
        r->end[i] = r->n += pt->tensor[i].alias >= 0 || strstr(pt->tensor[i].name, "qkv_bias.k") ? 0
                                                                                                  : pt->tensor[i].numel;
    r->tensors = pt->ntensors;
    for (int f = 0; f < pt->nflats; f++) {
        struct param_seg *seg;
        int n = param_segments(pt, f, t->comm->rank, &seg);

        for (int s = 0; s < n; s++)
            if (r->end[seg[s].tensor] > (seg[s].tensor ? r->end[seg[s].tensor - 1] : 0))
                memcpy(out + r->end[seg[s].tensor] - pt->tensor[seg[s].tensor].numel + seg[s].lo,
                       zero_slice(t->zero, ZERO_W, f, t->comm->rank) + seg[s].at,
                       (seg[s].hi - seg[s].lo) * sizeof *out);
        free(seg);
    }
    return out;
}

/* Every rank's own slices of the compute weights, and a copy that it holds of a peer's must be the peer's. */
static void copy_slices(struct curve *r, const struct train *t)
{
    const struct param_table *pt = t->setup->table;
    size_t size = ds_dtype_bytes(t->setup->dtype);

    r->slices = xcalloc(pt->total / (uint64_t)pt->ranks + 1, size);
    r->bytes = 0;
    for (int f = 0; f < pt->nflats; f++) {
        size_t n = pt->flat[f].slice * size;

        memcpy(r->slices + r->bytes, zero_weight(t->zero, f, t->comm->rank, 0), n);
        r->bytes += n;
    }
}

/* Law c: what all ranks hold is equal on all of them. */
static uint64_t whole_hash(const struct train *t)
{
    const struct param_table *pt = t->setup->table;
    uint64_t sum = 0;

    for (int f = 0; f < pt->nflats; f++)
        if (t->zero->flat[f].whole)
            sum = sum * 31 + hash64(zero_weight(t->zero, f, 0, 0),
                                    pt->flat[f].slice * (uint64_t)pt->ranks * ds_dtype_bytes(t->setup->dtype));
    return sum;
}

static int train_to(struct curve *r, struct train *t, struct err *err)
{
    while (t->step < r->steps) {
        if (train_step(t, err) < 0)
            return -1;
        if (r->result && t->step <= HARNESS_STEPS) {
            r->result->loss[t->step - 1] = t->loss;
            r->result->norm[t->step - 1] = t->grad_norm;
            r->result->lr[t->step - 1] = t->scalars.lr;
        }
        if (t->setup->job.eval_every && t->step % t->setup->job.eval_every == 0 &&
            train_eval(t, &t->valid_loss, err) < 0)
            return -1;
        if (t->setup->job.save_every && t->step % t->setup->job.save_every == 0 &&
            train_save(t, err) < 0)
            return -1;
    }
    return 0;
}

static void conclude(struct result *result, const struct train *t, double valid)
{
    struct mem_info m;

    t->dev->ops->info(t->dev, &m);
    result->state_bytes = (double)(m.now[MEM_PARAM] + m.now[MEM_GRAD] + m.now[MEM_OPTIM]);
    result->numel = (double)t->setup->table->numel;
    result->weight = copy_masters(t, result);
    result->valid = valid;
    result->samples = t->samples;
}

int harness_curve(struct train *t, void *curve, struct err *err)
{
    struct curve *c = curve;
    double valid = 0;

    if (c->result)
        c->result->first = copy_masters(t, c->result);
    if (train_to(c, t, err) < 0 || train_eval(t, &valid, err) < 0)
        return -1;
    c->hash = whole_hash(t);
    copy_slices(c, t);
    if (t->setup->job.run_dir && train_save(t, err) < 0)
        return -1;
    for (int64_t step; t->writer && ckpt_poll(t->writer, 1, &step, err) > 0;)
        ;
    if (c->result)
        conclude(c->result, t, valid);
    return 0;
}

/* Each rank has brought its slices, and zeros. */
static void add_masters(struct result *to, const struct result *from)
{
    for (uint64_t i = 0; i < to->n; i++) {
        to->weight[i] += from->weight[i];
        to->first[i] += from->first[i];
    }
}

struct result harness_train(int world, int64_t steps, const struct settings_rows *rows)
{
    struct harness_rank *r = xcalloc((size_t)world, sizeof *r);
    struct curve *c = xcalloc((size_t)world, sizeof *c);
    struct result *each = xcalloc((size_t)world, sizeof *each), result;

    for (int i = 0; i < world; i++) {
        c[i] = (struct curve){.steps = steps, .result = &each[i]};
        r[i] = (struct harness_rank){.rows = rows, .body = harness_curve, .arg = &c[i]};
    }
    harness_run(r, world, 1);
    harness_ended_well(r, world);
    result = each[0];
    for (int i = 0; i < world; i++) {
        assert_true(c[i].hash == c[0].hash);
        result.hash = result.hash * 31 + hash64(c[i].slices, c[i].bytes);
        free(c[i].slices);
        if (i) {
            add_masters(&result, &each[i]);
            result_clear(&each[i]);
        }
    }
    free(each);
    free(c);
    free(r);
    return result;
}

struct harness_rank harness_alone(const struct settings_rows *rows, int64_t steps, struct result *result)
{
    struct curve c = {.steps = steps, .result = result};
    struct harness_rank r = {.rows = rows, .body = harness_curve, .arg = &c};

    harness_run(&r, 1, 1);
    free(c.slices);
    r.arg = NULL;
    return r;
}

void result_clear(struct result *r)
{
    free(r->weight);
    free(r->first);
    free(r->end);
}

static double distance(const float *a, const float *b, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

void assert_weights_close(const struct result *a, const struct result *b, int narrow)
{
    for (int i = 0; i < b->tensors; i++) {
        uint64_t from = i ? b->end[i - 1] : 0, n = b->end[i] - from;
        double away = distance(a->weight + from, b->weight + from, n);
        double went = distance(b->weight + from, b->first + from, n);

        if (away > (narrow ? 5e-2 : 1e-3) * went)
            fail_msg("tensor %d of %d: %g away where the way is %g", i, b->tensors, away, went);
    }
}

void assert_close(const struct result *a, const struct result *b, int steps, int narrow)
{
    for (int i = 0; i < steps; i++)
        if (fabs(a->loss[i] - b->loss[i]) > (narrow ? 1e-2 : 1e-5) * fabs(b->loss[i]))
            fail_msg("step %d: loss %.9g is not %.9g", i + 1, a->loss[i], b->loss[i]);
    assert_weights_close(a, b, narrow);
    assert_true(fabs(a->valid - b->valid) <= (narrow ? 1e-2 : 1e-5) * b->valid);
}

void assert_same(const struct result *a, const struct result *b, int from, int to)
{
    for (int i = from; i < to; i++) {
        assert_true(a->loss[i] == b->loss[i]);
        assert_true(a->norm[i] == b->norm[i]);
        assert_true(a->lr[i] == b->lr[i]);
    }
    assert_memory_equal(a->weight, b->weight, a->n * sizeof *a->weight);
    assert_true(a->hash == b->hash);
    assert_true(a->valid == b->valid);
    assert_true(a->samples == b->samples);
}
