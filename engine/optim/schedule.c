/* Learning-rate schedules: see schedule.h. */
#include "engine/optim/schedule.h"
#include "engine/optim/optim.h"

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

/* A position 0..1 in n stairs; n 0: a line. */
static double stairs(double x, int64_t n)
{
    return n > 0 ? floor(x * (double)n) / (double)n : x;
}

static double cycle_length(const struct one_cycle *c)
{
    return (double)(c->first + (c->second < 0 ? c->first : c->second));
}

/* Height in the cycle at index i, 0 at its ends and 1 at its top. */
static double cycle_height(const struct one_cycle *c, double i)
{
    double first = (double)c->first, x = i + 1, total = cycle_length(c);

    if (x <= first)
        return stairs(x / first, c->first_stairs);
    return x < total ? 1 - stairs((x - first) / (total - first),
                                  c->second_stairs < 0 ? c->first_stairs : c->second_stairs) : 0;
}

/* Decays since the cycle's end, 0 within it. */
static double cycle_decays(const struct one_cycle *c, double i)
{
    double k = i - cycle_length(c) + 1;

    return k > 0 && c->decay_step > 0 ? k / (double)c->decay_step : 0;
}

static double cycle_lr(const struct one_cycle *c, double i)
{
    return (c->min_lr + (c->max_lr - c->min_lr) * cycle_height(c, i)) /
           (1 + c->decay_lr_rate * cycle_decays(c, i));
}

static double cycle_mom(const struct one_cycle *c, double i)
{
    double m = (c->max_mom - (c->max_mom - c->min_mom) * cycle_height(c, i)) *
               (1 + c->decay_mom_rate * cycle_decays(c, i));

    return fmin(m, nextafterf(1, 0));
}

static double range_test(const struct lr_range_test *r, double i)
{
    double x = (i + 1) / (double)r->step;

    return r->min_lr * (1 + r->rate * (r->staircase ? floor(x) : x));
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
    case SCHED_ONE_CYCLE:
        return cycle_lr(&job->cycle, i);
    case SCHED_RANGE_TEST:
        return range_test(&job->range, i);
    default:
        return job->lr;
    }
}

int schedule_cycles_momentum(const struct job *job)
{
    return job->sched == SCHED_ONE_CYCLE && job->cycle.momentum && optim_of(job)->has_betas;
}

double schedule_momentum(const struct job *job, double i)
{
    if (job->optim == OPTIM_SGD)
        return job->momentum;
    return schedule_cycles_momentum(job) ? cycle_mom(&job->cycle, i) : job->betas.v[0];
}

int schedule_check(const struct job *job, struct err *err)
{
    const struct one_cycle *c = &job->cycle;

    if (job->sched != SCHED_ONE_CYCLE)
        return 0;
    if (c->max_lr <= 0 || c->min_lr > c->max_lr)
        return err_set(err, ERR_INPUT, "scheduler OneCycle: scheduler.params.cycle_max_lr = %g must be over 0 and "
                       "not below cycle_min_lr = %g", c->max_lr, c->min_lr);
    if (c->momentum && c->min_mom > c->max_mom)
        return err_set(err, ERR_INPUT, "scheduler OneCycle: scheduler.params.cycle_min_mom = %g is over "
                       "cycle_max_mom = %g; exchange them", c->min_mom, c->max_mom);
    return 0;
}
