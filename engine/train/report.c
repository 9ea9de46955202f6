/* What rank 0 tells the front end: one JSON object a message (LINK_METRIC, LINK_EVENT). */
#include "engine/train/train.h"

#include "engine/base/buf.h"
#include "engine/optim/schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int speaks(const struct train *t)
{
    return t->link && t->comm->rank == 0;
}

/* JSON has no NaN. */
static void add_number(struct buf *b, const char *key, double v)
{
    if (isfinite(v))
        buf_addf(b, "\"%s\":%.9g,", key, v);
    else
        buf_addf(b, "\"%s\":null,", key);
}

static void add_classes(struct buf *b, const char *key, uint64_t bytes[COLL_OPS][CLASSES])
{
    static const char *const name[CLASSES] = {"grad", "param", "act", "state", "control"};

    buf_addf(b, "\"%s\":{", key);
    for (int i = 0; i < CLASSES; i++) {
        uint64_t sum = 0;

        for (int op = 0; op < COLL_OPS; op++)
            sum += bytes[op][i];
        buf_addf(b, "%s\"%s\":%llu", i ? "," : "", name[i], (unsigned long long)sum);
    }
    buf_adds(b, "},");
}

/* What the step itself moved: {group: {operation: {sent, received}}}. */
static void add_step_bytes(const struct train *t, struct buf *b)
{
    int groups = 0;

    buf_adds(b, "\"step_bytes\":{");
    for (int g = 0; g < GROUPS; g++) {
        int n = 0;

        for (int op = 0; op < COLL_OPS; op++) {
            double bytes[2];

            if (!t->last.traffic[g].calls[op])
                continue;
            account_bytes(&t->last, (enum train_group)g, op, bytes);
            if (!n++)
                buf_addf(b, "%s\"%s\":{", groups++ ? "," : "", group_name[g]);
            buf_addf(b, "%s\"%s\":{\"sent\":%.0f,\"received\":%.0f}", n > 1 ? "," : "",
                     coll_name((uint32_t)op), bytes[0], bytes[1]);
        }
        if (n)
            buf_addc(b, '}');
    }
    buf_adds(b, "},");
}

static void add_traffic(struct train *t, struct buf *b)
{
    struct comm_counters c = {0};

    zero_counters(t->zero, &c);
    add_classes(b, "sent_bytes", c.sent);
    add_classes(b, "received_bytes", c.received);
    add_step_bytes(t, b);
}

static void add_times(const struct train *t, struct buf *b)
{
    double ms[TIMES];

    account_ms(&t->last, ms);
    buf_adds(b, "\"phase_ms\":{");
    for (int i = 0; i < STEP_TIMES; i++)
        buf_addf(b, "%s\"%s\":%.6f", i ? "," : "", time_name[i], ms[i]);
    buf_adds(b, "},");
    add_number(b, "save_ms", ms[TIME_SAVE]);
}

static void add_memory_of(struct buf *b, const char *key, const uint64_t bytes[MEM_CLASSES])
{
    buf_addf(b, "\"%s\":{", key);
    for (int i = 0; i < MEM_CLASSES; i++)
        buf_addf(b, "%s\"%s\":%llu", i ? "," : "", mem_class_name[i], (unsigned long long)bytes[i]);
    buf_adds(b, "}");
}

static void add_memory(struct train *t, struct buf *b)
{
    struct mem_info m = {0};

    t->dev->ops->info(t->dev, &m);
    add_memory_of(b, "memory_bytes", m.now);
    buf_addc(b, ',');
    add_memory_of(b, "memory_peak_bytes", m.peak);
}

void train_report_step(struct train *t)
{
    double tokens = (double)setup_tokens_per_step(t->setup), s = (double)t->step_ns * 1e-9;
    struct buf b = BUF_INIT;

    if (!speaks(t))
        return;
    buf_addf(&b, "{\"step\":%lld,\"samples\":%lld,\"tokens\":%lld,", (long long)t->step,
             (long long)t->samples, (long long)(t->samples * t->setup->job.seq_len));
    add_number(&b, "loss", t->loss);
    add_number(&b, "grad_norm", t->grad_norm);
    add_number(&b, "lr", t->scalars.lr);
    add_number(&b, "loss_scale", t->scalars.loss_scale);
    buf_addf(&b, "\"skipped\":%s,\"skipped_steps\":%lld,",
             t->scalars.skip ? "true" : "false", (long long)t->skipped);
    add_number(&b, "step_ms", s * 1e3);
    add_times(t, &b);
    add_number(&b, "tokens_per_s", s > 0 ? tokens / s : 0);
    buf_addf(&b, "\"max_steps\":%lld,", (long long)t->setup->total_steps);
    add_traffic(t, &b);
    add_memory(t, &b);
    buf_addc(&b, '}');
    link_metric(t->link, b.data);
    buf_clear(&b);
}

void train_report_eval(struct train *t)
{
    struct buf b = BUF_INIT;

    if (!speaks(t))
        return;
    if (!isfinite(t->valid_loss)) {
        train_report_text(t, "step %lld: the validation loss is not finite", (long long)t->step);
        return;
    }
    buf_addf(&b, "{\"step\":%lld,", (long long)t->step);
    add_number(&b, "eval_ms", (double)(t->spent.ns[PHASE_EVAL] - t->mark.ns[PHASE_EVAL]) * 1e-6);
    add_number(&b, "valid_loss", t->valid_loss);
    b.data[b.len - 1] = '}';
    link_metric(t->link, b.data);
    buf_clear(&b);
}

void train_report_text(struct train *t, const char *fmt, ...)
{
    struct buf text = BUF_INIT, b = BUF_INIT;
    va_list ap;

    if (!speaks(t))
        return;
    va_start(ap, fmt);
    buf_vaddf(&text, fmt, ap);
    va_end(ap);
    buf_adds(&b, "{\"text\":\"");
    buf_add_json(&b, text.data, text.len);
    buf_adds(&b, "\"}");
    link_metric(t->link, b.data);
    buf_clear(&text);
    buf_clear(&b);
}

void train_report_record(struct train *t, const char *json)
{
    if (speaks(t))
        link_metric(t->link, json);
}

void train_report_restore(struct train *t, int64_t step)
{
    char text[96];

    if (!speaks(t))
        return;
    snprintf(text, sizeof text, "{\"ev\":\"restore\",\"step\":%lld,\"from\":\"disk\"}", (long long)step);
    link_event(t->link, text);
}

void train_report_snapshot(struct train *t, int64_t step)
{
    char text[96];

    if (!speaks(t))
        return;
    snprintf(text, sizeof text, "{\"ev\":\"snapshot\",\"step\":%lld,\"place\":\"disk\"}",
             (long long)step);
    link_event(t->link, text);
}

void train_report_start(struct train *t)
{
    struct setup *s = t->setup;
    int64_t flops = exec_flops(t->exec, s->job.micro_batch_size, s->job.seq_len) *
                    s->job.accumulation;
    struct buf table = BUF_INIT;
    struct err err = ERR_INIT;
    size_t bytes = 0;

    if (!speaks(t))
        return;
    exec_bytes(t->exec, s->job.micro_batch_size, s->job.seq_len, &bytes, &err);
    /* a step reaches about 0.6 of a plain product's rate */
    setup_table(s, bytes, t->step, flops, 0.6 * train_flops_per_s(t->k, s->dtype), t->threads, &table);
    exec_say_again(t->exec, s->job.micro_batch_size, s->job.seq_len, &table, &err);
    if (table.len)
        table.data[--table.len] = 0;
    train_report_text(t, "%s", buf_str(&table));
    buf_clear(&table);
}
