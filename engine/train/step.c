/* One step and evaluation: see train.h.
 *
 * Numbers (ENGINE 7): backward is seeded with the loss scale / (train_batch_size * T), or less with
 * prescale_gradients; V, the valid targets of the global batch, comes back with the reduction, and the ratio, the clip
 * factor and the unscaling are one multiplier that the optimizer applies. No mean of means.
 */
#include "engine/train/train.h"

#include "engine/base/buf.h"
#include "engine/base/clock.h"
#include "engine/optim/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int train_batch_init(struct micro_batch *b, int64_t B, int64_t T)
{
    size_t n = (size_t)(B * T);

    b->B = B;
    b->T = T;
    b->token = xcalloc(n, sizeof *b->token);
    b->target = xcalloc(n, sizeof *b->target);
    b->pos = xcalloc(n, sizeof *b->pos);
    b->doc = xcalloc(n, sizeof *b->doc);
    b->sample = xcalloc((size_t)B, sizeof *b->sample);
    return 0;
}

void train_batch_clear(struct micro_batch *b)
{
    free(b->token);
    free(b->target);
    free(b->pos);
    free(b->doc);
    free(b->sample);
    memset(b, 0, sizeof *b);
}

static struct ds_batch view(const struct micro_batch *b)
{
    return (struct ds_batch){b->B, b->T, b->token, b->target, b->pos, b->doc, b->sample};
}

static int load(struct train *t, enum data_split split, uint64_t first, int64_t count,
                struct err *err)
{
    struct micro_batch *b = &t->batch;

    for (int64_t i = 0; i < b->B; i++) {
        int32_t *target = b->target + i * b->T;

        b->sample[i] = first + (uint64_t)i;
        if (i >= count) { /* past the end of the validation set: nothing counts */
            for (int64_t j = 0; j < b->T; j++)
                target[j] = -1;
            continue;
        }
        if (data_sample(t->setup->data, split, b->sample[i], b->token + i * b->T, target,
                        b->pos + i * b->T, b->doc + i * b->T, err) < 0)
            return -1;
    }
    return 0;
}

/* Raw gradients are those of the summed loss divided by this. */
static double divisor(const struct train *t)
{
    const struct job *job = &t->setup->job;
    double mean = (double)job->train_batch_size * (double)job->seq_len;

    return (job->prescale_gradients ? mean * job->predivide : mean) / t->scalars.loss_scale;
}

/* Forward and backward of this rank's share of the global batch. */
static int micro_batches(struct train *t, double loss[3], struct err *err)
{
    const struct job *job = &t->setup->job;
    float seed = (float)(1.0 / divisor(t));
    uint64_t first = (uint64_t)(t->samples +
                                t->comm->rank * job->micro_batch_size * job->accumulation);

    for (int64_t a = 0; a < job->accumulation; a++) {
        struct ds_batch b = view(&t->batch);

        train_phase(t, PHASE_DATA);
        if (load(t, DATA_TRAIN, first + (uint64_t)(a * job->micro_batch_size), t->batch.B, err) < 0)
            return -1;
        train_phase(t, PHASE_FORWARD);
        if (exec_forward(t->exec, DS_TRAIN, &b, &t->scalars, seed, loss, err) < 0)
            return -1;
        train_phase(t, PHASE_BACKWARD);
        if (exec_backward(t->exec, &b, &t->scalars, seed, a == 0, err) < 0)
            return -1;
    }
    return 0;
}

/* What the optimizer multiplies raw gradients by; sets t->grad_norm. */
static double multiplier(struct train *t, double valid, double raw_norm)
{
    const struct job *job = &t->setup->job;
    double ratio = valid > 0 ? divisor(t) / valid : 0;
    double clip = 1;

    t->grad_norm = raw_norm * ratio;
    if (job->gradient_clipping > 0)
        clip = fmin(1, job->gradient_clipping / (t->grad_norm + 1e-6));
    return ratio * clip;
}

#define MAX_SKIPS 10 /* in a row: then the weights are ruined, and no later step can mend them */

/* A loss or gradient that is not finite: in words, such as "the gradient is not finite (NaN, first in block.0.ln1.w)".
 */
static void name_bad(const struct zero_bad *bad, char *out, size_t n)
{
    if (bad->tensor)
        snprintf(out, n, "the gradient is not finite (%s, first in %s)", bad->kind, bad->tensor);
    else
        snprintf(out, n, "the loss is not finite");
}

/* fp16 with a dynamic scale: the step is left out, and the scale falls until it can no more. */
static int overflow(struct train *t, const char *what, struct err *err)
{
    double before = t->scale.scale;

    if (loss_scale_step(&t->scale, &t->setup->job, 1) < 0)
        return err_set(err, ERR_JOB,
                       "step %lld: %s at the smallest loss scale, %g; lower optimizer.params.lr, use bf16.enabled, or "
                       "start again from an earlier checkpoint",
                       (long long)t->step + 1, what, before);
    train_report_text(t, "step %lld left out: %s; loss scale %g%s", (long long)t->step + 1, what, t->scale.scale,
                      t->scale.scale < before ? ", halved" : " stays");
    return 0;
}

/* The run ends, or leaves the step out. */
static int not_finite(struct train *t, const struct zero_bad *bad, struct err *err)
{
    int stop = t->setup->job.on_nan == ON_NAN_STOP && !t->setup->job.fp16.enabled;
    char what[256];

    name_bad(bad, what, sizeof what);
    t->skipped++;
    t->in_a_row++;
    if (loss_scale_dynamic(&t->setup->job))
        return overflow(t, what, err);
    if (!stop && t->in_a_row < MAX_SKIPS) {
        train_report_text(t, "step %lld left out: %s", (long long)t->step + 1, what);
        return 0;
    }
    return err_set(err, ERR_JOB,
                   "step %lld: %s%s; lower optimizer.params.lr%s or start again from an earlier checkpoint%s",
                   (long long)t->step + 1, what, stop ? "" : ", as in the nine steps before it",
                   t->setup->job.fp16.enabled ? " or fp16.loss_scale" : "",
                   stop ? " (run.on_nan = skip leaves such steps out)" : "");
}

static int apply(struct train *t, struct err *err)
{
    const struct job *job = &t->setup->job;
    double index = (double)t->applied / (double)job->train_batch_size;

    t->in_a_row = 0;
    t->scalars.update = t->update + 1;
    t->scalars.lr = (float)schedule_lr(job, index, (double)t->setup->total_steps);
    t->scalars.beta1 = (float)schedule_momentum(job, index);
    if (zero_update(t->zero, &t->scalars, err) < 0)
        return -1;
    t->update++;
    t->applied += job->train_batch_size;
    return 0;
}

static int update(struct train *t, const double sums[3], struct err *err)
{
    struct zero_bad bad;
    double norm;

    if (zero_norm(t->zero, &norm, &bad, err) < 0)
        return -1;
    t->loss = sums[1] > 0 ? sums[0] / sums[1] : 0;
    t->scalars.grad_scale = (float)multiplier(t, sums[1], norm);
    t->scalars.skip = bad.tensor || !isfinite(t->loss) || sums[1] <= 0;
    if (bad.tensor || !isfinite(t->loss))
        return not_finite(t, &bad, err);
    loss_scale_step(&t->scale, &t->setup->job, 0);
    return t->scalars.skip ? 0 : apply(t, err);
}

/* This rank's wish to stop; the largest of all ranks is agreed. */
static double wants_stop(const struct train *t)
{
    const struct job *job = &t->setup->job;
    uint32_t asked = t->boot->page ? __atomic_load_n(&t->boot->page->stop, __ATOMIC_ACQUIRE) : 0;

    if (!asked && job->max_time_ms > 0 &&
        (clock_ns() - t->begin_ns) / 1000000 >= job->max_time_ms)
        return STOP_TIME;
    return asked;
}

int train_step(struct train *t, struct err *err)
{
    double sums[3] = {0}, peak[2] = {0};
    int64_t begin = clock_ns();

    train_account_begin(t);
    t->scalars.step = t->step;
    t->scalars.loss_scale = (float)t->scale.scale;
    if (micro_batches(t, sums, err) < 0)
        return -1;
    train_phase(t, PHASE_REDUCE);
    peak[0] = wants_stop(t);
    if (zero_reduce(t->zero, sums, 3, peak, err) < 0)
        return -1;
    train_phase(t, PHASE_UPDATE);
    if (update(t, sums, err) < 0)
        return -1;
    t->step++;
    t->samples += t->setup->job.train_batch_size;
    t->stop = (enum stop_why)peak[0];
    train_account_end(t, begin);
    return 0;
}

int train_eval(struct train *t, double *loss, struct err *err)
{
    const struct job *job = &t->setup->job;
    int64_t n = data_samples(t->setup->data, DATA_VALID), B = t->batch.B;
    double sums[3] = {0};
    struct coll all = {.op = COLL_ALL_REDUCE, .send = sums, .recv = sums, .count = 3,
                       .dtype = DS_F64, .reduce = COLL_SUM, .class = CLASS_CONTROL};

    if (job->eval_samples > 0 && job->eval_samples < n)
        n = job->eval_samples;
    train_phase(t, PHASE_EVAL);
    for (int64_t round = 0; round < n; round += t->comm->size * B) { /* the same for all: layers gather */
        int64_t first = round + t->comm->rank * B;
        struct ds_batch b = view(&t->batch);

        if (load(t, DATA_VALID, (uint64_t)first, n - first, err) < 0 ||
            exec_forward(t->exec, DS_EVAL, &b, &t->scalars, 0, sums, err) < 0)
            return -1;
        train_phase(t, PHASE_EVAL);
    }
    if (t->comm->size > 1 && comm_run(t->comm, &all, err) < 0)
        return -1;
    *loss = sums[1] > 0 ? sums[0] / sums[1] : 0;
    train_phase(t, PHASE_START);
    return 0;
}
