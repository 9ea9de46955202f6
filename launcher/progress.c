/* How far a job is: see progress.h. */
#include "launcher/progress.h"

#include "launcher/jsonget.h"

#include <math.h>

#define MEASURE_MS 3000

/* One step's own rate jumps too much to be read. */
static void measure(struct progress *p, int64_t now_ms)
{
    if (now_ms - p->mark_ms >= MEASURE_MS) {
        p->rate = (p->tokens - p->mark_tokens) * 1000.0 / (double)(now_ms - p->mark_ms);
        p->mark_ms = now_ms;
        p->mark_tokens = p->tokens;
    } else if (p->rate <= 0 || p->mark_ms == p->first_ms) {
        p->rate = progress_rate(p);
    }
}

int progress_take(struct progress *p, const char *json, size_t n, int64_t now_ms)
{
    double v, step;

    if (!jsonget_valid(json, n))
        return -1;
    if (!jsonget_number(json, n, "valid_loss", &v)) {
        p->valid_loss = v;
        p->have_valid = 1;
        p->valid_step = jsonget_number(json, n, "step", &step) ? p->step : step;
        if (jsonget_number(json, n, "loss", &v))
            return 2;
    }
    if (jsonget_number(json, n, "step", &step))
        return 0;
    p->loss = jsonget_number(json, n, "loss", &v) ? NAN : v;
    if (!p->steps++ || isnan(p->first_loss))
        p->first_loss = p->loss;
    jsonget_number(json, n, "skipped_steps", &p->skipped);
    p->step = step;
    jsonget_number(json, n, "tokens", &p->tokens);
    jsonget_number(json, n, "max_steps", &p->max_steps);
    jsonget_number(json, n, "tokens_per_s", &p->tokens_per_s);
    jsonget_number(json, n, "step_ms", &p->step_ms);
    p->last_ms = now_ms;
    if (p->steps == 1) {
        p->first_ms = p->mark_ms = now_ms;
        p->mark_tokens = p->tokens;
        p->first_step = p->step;
        p->tokens_first = p->tokens;
    }
    measure(p, now_ms);
    return 1;
}

double progress_rate(const struct progress *p)
{
    if (p->steps < 2 || p->last_ms <= p->first_ms)
        return p->tokens_per_s;
    return (p->tokens - p->tokens_first) * 1000.0 / (double)(p->last_ms - p->first_ms);
}

void progress_count(double v, struct buf *out)
{
    static const char unit[] = " kMGT";
    int i = 0;

    while (fabs(v) >= 999.5 && i < 4) {
        v /= 1000;
        i++;
    }
    buf_addf(out, i == 0 || v >= 99.95 ? "%.0f" : "%.1f", v);
    if (i)
        buf_addc(out, unit[i]);
}

void progress_time(double seconds, struct buf *out)
{
    long s = (long)(seconds + 0.5);

    if (s < 60)
        buf_addf(out, "%lds", s);
    else if (s < 3600)
        buf_addf(out, "%ldm%02lds", s / 60, s % 60);
    else
        buf_addf(out, "%ldh%02ldm", s / 3600, s % 3600 / 60);
}

static void add_step(const struct progress *p, double step, struct buf *out)
{
    buf_addf(out, "step %.0f", step);
    if (p->max_steps > 0)
        buf_addf(out, "/%.0f", p->max_steps);
}

void progress_valid(const struct progress *p, struct buf *out)
{
    add_step(p, p->valid_step, out);
    buf_addf(out, "  valid %.4f", p->valid_loss);
}

void progress_line(const struct progress *p, int nodes, int width, struct buf *out)
{
    size_t from = out->len;
    double per_step = p->step_ms;

    if (p->steps > 2 && p->step > p->first_step)
        per_step = (double)(p->last_ms - p->first_ms) / (p->step - p->first_step);
    add_step(p, p->step, out);
    buf_addf(out, "  loss %.4f", p->loss);
    if (p->skipped > 0)
        buf_addf(out, "  %.0f skipped", p->skipped);
    if (p->have_valid && p->valid_step == p->step)
        buf_addf(out, "  valid %.4f", p->valid_loss);
    buf_adds(out, "  ");
    progress_count(p->rate, out);
    buf_adds(out, " tok/s");
    if (p->max_steps > p->step) {
        buf_adds(out, "  ");
        progress_time((p->max_steps - p->step) * per_step / 1000, out);
        buf_adds(out, " left");
    }
    buf_addf(out, "  %d node%s", nodes, nodes == 1 ? "" : "s");
    if (width > 0 && out->len - from > (size_t)width) {
        out->len = from + (size_t)width;
        out->data[out->len] = 0;
    }
}

int progress_due(struct progress *p, int64_t every, int64_t now_ms)
{
    int due = p->steps == 1 || (p->max_steps > 0 && p->step >= p->max_steps) ||
              (every > 0 && floor(p->step / (double)every) > floor(p->plain_step / (double)every)) ||
              now_ms - p->plain_ms >= 60000;

    if (due) {
        p->plain_ms = now_ms;
        p->plain_step = p->step;
    }
    return due;
}
