/* From rows to model and data: see setup.h. */
#include "engine/train/setup.h"

#include "engine/base/hash.h"
#include "engine/base/parse.h"
#include "engine/optim/schedule.h"
#include "engine/zero/zero.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *row_value(const struct settings_rows *rows, const char *path)
{
    for (int i = 0; i < rows->n; i++)
        if (!strcmp(rows->row[i].path, path))
            return rows->row[i].value;
    return NULL;
}

/* A number of [model], 0 where it comes from the data. What is no number the model's own table complains about. */
static int64_t given(const struct settings_rows *rows, const char *path)
{
    const char *value = row_value(rows, path);
    int64_t n;

    return value && parse_i64(value, 0, INT64_MAX, &n) == 0 ? n : 0;
}

/* Writes down what the data decided, so that a checkpoint's settings rebuild the model without the data. */
static void note_row(struct setup *s, const char *path, int64_t value)
{
    char text[32];

    for (int i = 0; i < s->model->ntables; i++)
        for (int j = 0; j < s->model->tables[i].n; j++)
            if (!strcmp(s->model->tables[i].table[j].path, path) && !given(&s->rows, path)) {
                snprintf(text, sizeof text, "%lld", (long long)value);
                settings_rows_add(&s->rows, path, text, "from the data");
            }
}

static void copy_rows(struct settings_rows *to, const struct settings_rows *from)
{
    for (int i = 0; i < from->n; i++)
        settings_rows_add(to, from->row[i].path, from->row[i].value, from->row[i].where);
}

static int open_data(struct setup *s, struct err *err)
{
    if (data_open(&s->data, &s->job, given(&s->rows, "model.vocab_size"), err) < 0)
        return -1;
    if (data_samples(s->data, DATA_TRAIN) < 1)
        return err_set(err, ERR_INPUT,
                       "the training data holds %lld tokens, less than one sample of data.seq_len %lld "
                       "+ 1; give more text or a smaller data.seq_len",
                       (long long)data_tokens(s->data, DATA_TRAIN), (long long)s->job.seq_len);
    if (s->job.eval_every > 0 && data_samples(s->data, DATA_VALID) < 1)
        return err_set(err, ERR_INPUT,
                       "run.eval_every is set, but the validation data holds no sample of %lld tokens; "
                       "raise data.valid_split, give data.valid, or set run.eval_every = 0",
                       (long long)s->job.seq_len);
    return 0;
}

static int make_table(struct setup *s, int ranks, struct err *err)
{
    const struct param_rules rules = {s->job.weight_decay, s->job.freeze, s->job.no_decay, s->job.lr_mul};
    struct param_layer *layer = xcalloc((size_t)s->model->n, sizeof *layer);
    int rc;

    for (int l = 0; l < s->model->n; l++)
        layer[l] = (struct param_layer){s->model->site[l].name, s->model->param[l],
                                        s->model->nparams[l]};
    rc = param_table_create(&s->table, layer, s->model->n, ranks, &rules, err);
    free(layer);
    return rc;
}

static int make_order(struct setup *s, struct err *err)
{
    unsigned char layer[MODEL_MAX_LAYERS];

    for (int l = 0; l < s->model->n; l++)
        layer[l] = (unsigned char)((s->model->site[l].type_count > 1 ? ORDER_REPEATED : 0) |
                                   (s->model->ops[l]->restore ? ORDER_RESTORES : 0));
    return order_create(&s->order, &s->job, layer, s->model->n, err);
}

/* Kernels count the tokens of a micro-batch in 32 bits, and a step's must fit the arithmetic of the run. */
static int check_tokens(const struct setup *s, struct err *err)
{
    int64_t step;

    if (s->job.micro_batch_size > INT32_MAX / s->job.seq_len)
        return err_set(err, ERR_INPUT,
                       "a micro-batch of train_micro_batch_size_per_gpu %lld x data.seq_len %lld is more than "
                       "%d tokens; lower the one and raise gradient_accumulation_steps",
                       (long long)s->job.micro_batch_size, (long long)s->job.seq_len, INT32_MAX);
    if (__builtin_mul_overflow(s->job.train_batch_size, s->job.seq_len, &step) || step > INT64_MAX >> 16)
        return err_set(err, ERR_INPUT,
                       "train_batch_size %lld x data.seq_len %lld is too large; lower one of them",
                       (long long)s->job.train_batch_size, (long long)s->job.seq_len);
    return 0;
}

static int64_t least(int64_t a, int64_t b)
{
    return a <= 0 ? b : b <= 0 ? a : a < b ? a : b;
}

static int64_t steps_for(int64_t amount, int64_t per_step)
{
    return amount > 0 ? (amount + per_step - 1) / per_step : 0;
}

static int find_length(struct setup *s, struct err *err)
{
    int64_t n = s->job.max_steps;

    n = least(n, steps_for(s->job.max_samples, s->job.train_batch_size));
    n = least(n, steps_for(s->job.max_tokens, setup_tokens_per_step(s)));
    if (!n && s->job.max_time_ms <= 0)
        return err_set(err, ERR_INPUT,
                       "the run has no end: give one of run.steps, run.samples, run.tokens, run.time "
                       "in a job file, or --set run.steps=N on the command line");
    s->total_steps = n;
    if (!n && s->job.total_num_steps <= 0 &&
        (s->job.sched == SCHED_WARMUP_DECAY || s->job.sched == SCHED_WARMUP_COSINE))
        return err_set(err, ERR_INPUT,
                       "the schedule needs the length of the run: give "
                       "scheduler.params.total_num_steps or run.steps");
    return 0;
}

static int check_limits(const struct setup *s, struct err *err)
{
    static const char *const axis[] = {"pipeline", "data", "sequence", "tensor"};

    for (int a = 0; a < MESH_AXES; a++)
        if (a != MESH_DATA && s->mesh.size[a] > 1)
            return err_set(err, ERR_INPUT_LIMIT,
                           "[parallel] %s = %d: this build runs the data axis only; set it to 1",
                           axis[a], s->mesh.size[a]);
    if (s->model->max_T && s->job.seq_len > s->model->max_T)
        return err_set(err, ERR_INPUT,
                       "data.seq_len %lld is more than the model's n_positions %lld; lower the one or "
                       "raise the other",
                       (long long)s->job.seq_len, (long long)s->model->max_T);
    return 0;
}

/* Near ranks are blocks of equal size. */
static int check_near(const struct setup *s, struct err *err)
{
    int64_t ranks = s->mesh.size[MESH_DATA], near = s->job.hpz, below = near, above = near;

    if (near > 1 && s->job.zero_stage < 3)
        return err_set(err, ERR_INPUT,
                       "zero_optimization.zero_hpz_partition_size = %lld: weights are split from stage 3 on only; "
                       "write zero_optimization.stage = 3, or take it out", (long long)near);
    if (s->job.zero_stage < 3 || ranks == 1 || ranks % near == 0)
        return 0;
    while (below > ranks || ranks % below)
        below--;
    while (above < ranks && ranks % above)
        above++;
    return err_set(err, ERR_INPUT,
                   "zero_optimization.zero_hpz_partition_size = %lld does not divide the %lld data ranks; %lld "
                   "and %lld do",
                   (long long)near, (long long)ranks, (long long)below,
                   (long long)(above < ranks ? above : ranks));
}

static int fill(struct setup *s, int world, int with_data, struct buf *warn, struct err *err)
{
    struct settings *tables[1] = {&s->settings};
    int64_t axes[MESH_AXES];

    if (settings_apply(tables, 1, &s->rows, "model.", warn, err) < 0 ||
        optim_defaults(&s->job, &s->settings, err) < 0 || schedule_check(&s->job, err) < 0)
        return -1;
    axes[MESH_PIPELINE] = s->job.pipeline;
    axes[MESH_DATA] = s->job.data;
    axes[MESH_SEQUENCE] = s->job.sequence;
    axes[MESH_TENSOR] = s->job.tensor;
    if (mesh_init(&s->mesh, world, axes, err) < 0)
        return -1;
    if (s->job.bf16 && s->job.fp16.enabled)
        return err_set(err, ERR_INPUT, "bf16.enabled and fp16.enabled exclude each other: set one of them to false");
    s->dtype = s->job.bf16 ? DS_BF16 : s->job.fp16.enabled ? DS_F16 : DS_F32;
    if (with_data && (job_batch(&s->job, &s->settings, s->mesh.size[MESH_DATA], err) < 0 || check_tokens(s, err) < 0 ||
                      check_near(s, err) < 0 || find_length(s, err) < 0 || open_data(s, err) < 0))
        return -1;
    if (model_create(&s->model, &s->job, &s->rows, s->dtype, s->data ? data_vocab(s->data) : 0, err) <
            0 ||
        check_limits(s, err) < 0)
        return -1;
    note_row(s, "model.vocab_size", s->model->vocab);
    note_row(s, "model.n_positions", s->model->max_T ? s->model->max_T : s->job.seq_len);
    return make_order(s, err) < 0 ? -1 : make_table(s, s->mesh.size[MESH_DATA], err);
}

int setup_create(struct setup **out, const struct settings_rows *rows, int world, int with_data,
                 struct buf *warn, struct err *err)
{
    struct setup *s = xcalloc(1, sizeof *s);

    copy_rows(&s->rows, rows);
    settings_init(&s->settings, job_table, job_table_n, &s->job);
    if (fill(s, world, with_data, warn, err) < 0) {
        setup_destroy(s);
        return -1;
    }
    *out = s;
    return 0;
}

void setup_destroy(struct setup *s)
{
    if (!s)
        return;
    order_destroy(s->order);
    param_table_destroy(s->table);
    model_destroy(s->model);
    data_close(s->data);
    settings_clear(&s->settings);
    settings_rows_clear(&s->rows);
    free(s);
}

uint64_t setup_hash(const struct setup *s)
{
    uint64_t both[2] = {settings_hash(&s->settings), model_hash(s->model)};

    return hash64(both, sizeof both);
}

int64_t setup_tokens_per_step(const struct setup *s)
{
    return s->job.train_batch_size * s->job.seq_len;
}

/* ---- the table ---- */

const char *human(double n, char out[32])
{
    static const char *const unit[] = {"", " k", " M", " G", " T"};
    int i = 0;

    while (n >= 1000 && i < 4) {
        n /= 1000;
        i++;
    }
    snprintf(out, 32, n < 10 && i ? "%.2f%s" : n < 100 && i ? "%.1f%s" : "%.0f%s", n, unit[i]);
    return out;
}

static void add_time(double s, struct buf *out)
{
    if (s < 120)
        buf_addf(out, "about %.0f s", s);
    else if (s < 7200)
        buf_addf(out, "about %.0f min", s / 60);
    else
        buf_addf(out, "about %.1f h", s / 3600);
}

/* The layers as [model] layers would say it: "embedding, block*12, norm, head". */
static void add_layers(const struct model *m, struct buf *out)
{
    for (int i = 0, run; i < m->n; i += run) {
        for (run = 1; i + run < m->n && m->ops[i + run] == m->ops[i]; run++)
            ;
        buf_addf(out, i ? ", %s" : "%s", m->ops[i]->type);
        if (run > 1)
            buf_addf(out, "*%d", run);
    }
}

static const char *precision(const struct setup *s)
{
    switch (s->dtype) {
    case DS_BF16:
        return kernels_cpu_bf16_native()
                   ? "bf16 with fp32 masters"
                   : "bf16 with fp32 masters (emulated without AVX-512 BF16: no faster than fp32 here)";
    case DS_F16:
        return "fp16 with fp32 masters (products in fp32)";
    default:
        return "fp32";
    }
}

void setup_table(const struct setup *s, size_t activation_bytes, int64_t done, int64_t flops_per_step,
                 double flops_per_s, int threads, struct buf *out)
{
    uint64_t bytes[MEM_CLASSES], sent[CLASSES];
    double tokens = (double)setup_tokens_per_step(s), n = (double)s->table->numel;
    char a[32], b[32], c[32], d[32];
    int64_t left;

    zero_bytes(s->table, s->order, &s->job, s->dtype, bytes);
    buf_adds(out, "  model    ");
    add_layers(s->model, out);
    buf_addf(out, ": %s parameters, %s\n", human(n, a), precision(s));
    buf_addf(out, "  batch    %lld samples of %lld tokens = %s tokens a step: micro-batch %lld x "
                  "accumulation %lld x %d data ranks, %d thread%s a rank\n",
             (long long)s->job.train_batch_size, (long long)s->job.seq_len, human(tokens, a),
             (long long)s->job.micro_batch_size, (long long)s->job.accumulation,
             s->mesh.size[MESH_DATA], threads, threads == 1 ? "" : "s");
    buf_addf(out, "  memory   a rank: parameters %sB, gradients %sB, optimizer %sB, activations %sB",
             human((double)bytes[MEM_PARAM], a), human((double)bytes[MEM_GRAD], b),
             human((double)bytes[MEM_OPTIM], c), human((double)activation_bytes, d));
    if (bytes[MEM_BUFFER])
        buf_addf(out, ", buffers %sB", human((double)bytes[MEM_BUFFER], a));
    buf_addc(out, '\n');
    zero_traffic(s->table, s->order, &s->job, s->dtype, sent);
    if (sent[CLASS_GRAD])
        buf_addf(out, "  network  a rank sends in a step: gradients %sB", human((double)sent[CLASS_GRAD], a));
    if (sent[CLASS_PARAM])
        buf_addf(out, ", weights %sB", human((double)sent[CLASS_PARAM], a));
    if (sent[CLASS_GRAD])
        buf_addc(out, '\n');
    if (s->data)
        buf_addf(out, "  data     train %s tokens, %s samples a pass; validation %s tokens\n",
                 human((double)data_tokens(s->data, DATA_TRAIN), a),
                 human((double)data_samples(s->data, DATA_TRAIN), b),
                 human((double)data_tokens(s->data, DATA_VALID), c));
    if (!s->total_steps)
        return;
    left = s->total_steps > done ? s->total_steps - done : 0;
    buf_addf(out, "  run      %lld steps", (long long)s->total_steps);
    if (done)
        buf_addf(out, ", %lld of them done: %lld", (long long)done, (long long)left);
    buf_addf(out, " = %s tokens", human(tokens * (double)left, a));
    if (s->data)
        buf_addf(out, ", %.2f passes",
                 (double)(left * s->job.train_batch_size) / (double)data_samples(s->data, DATA_TRAIN));
    if (flops_per_s > 0) {
        buf_adds(out, ", ");
        add_time((double)flops_per_step * (double)left / flops_per_s, out);
    }
    buf_addc(out, '\n');
}
