/* Learning-rate schedules: see schedule.h. */
#include "engine/optim/schedule.h"

#include <math.h>

static double warmup(const struct job *job, double i, double n)
{
    return job->warmup_type == WARMUP_LOG ? log(i + 1) / log(n) : i / n;
}

static double cosine(const struct job *job, double i, double total, double n)
{
    double w = job->warmup_min_ratio, c = job->cos_min_ratio, q;

    if (i < n)
        return w + (1 - w) * warmup(job, i, n);
    q = fmin(1, (i - n + 1) / fmax(1, total - n));
    return c + (1 - c) * (1 + cos(M_PI * q)) / 2;
}

double schedule_lr(const struct job *job, double i, double total)
{
    double n = fmax(2, (double)job->warmup_num_steps);
    double lo = job->warmup_min_lr, hi = job->warmup_max_lr > 0 ? job->warmup_max_lr : job->lr;

    if (job->total_num_steps > 0)
        total = (double)job->total_num_steps;
    switch (job->sched) {
    case SCHED_WARMUP_LR:
        return i < n ? lo + (hi - lo) * warmup(job, i, n) : hi;
    case SCHED_WARMUP_DECAY:
        if (i < n)
            return lo + (hi - lo) * warmup(job, i, n);
        return lo + (hi - lo) * fmax(0, (total - i) / fmax(1, total - n));
    case SCHED_WARMUP_COSINE:
        return job->lr * cosine(job, i, total, n);
    default:
        return job->lr;
    }
}
