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

static void add_traffic(struct train *t, struct buf *b)
{
    static const char *const name[CLASSES] = {"grad", "param", "act", "state", "control"};
    struct comm_counters c = {0};

    zero_counters(t->zero, &c);
    buf_adds(b, "\"sent_bytes\":{");
    for (int i = 0; i < CLASSES; i++) {
        uint64_t sum = 0;

        for (int op = 0; op < COLL_OPS; op++)
            sum += c.sent[op][i];
        buf_addf(b, "%s\"%s\":%llu", i ? "," : "", name[i], (unsigned long long)sum);
    }
    buf_adds(b, "},");
}

static void add_memory(struct train *t, struct buf *b)
{
    struct mem_info m = {0};

    t->dev->ops->info(t->dev, &m);
    buf_adds(b, "\"memory_bytes\":{");
    for (int i = 0; i < MEM_CLASSES; i++)
        buf_addf(b, "%s\"%s\":%llu", i ? "," : "", mem_class_name[i], (unsigned long long)m.now[i]);
    buf_adds(b, "}");
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
    buf_addf(&b, "\"loss_scale\":1,\"skipped\":%s,\"skipped_steps\":%lld,",
             t->scalars.skip ? "true" : "false", (long long)t->skipped);
    add_number(&b, "step_ms", s * 1e3);
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
    setup_table(s, bytes, flops, 0.6 * train_flops_per_s(t->k, s->dtype), t->threads, &table);
    if (table.len)
        table.data[--table.len] = 0;
    train_report_text(t, "%s", buf_str(&table));
    buf_clear(&table);
}
