/* The loss scale: see scale.h. */
#include "engine/optim/scale.h"

#include <math.h>

#define SCALE_MAX 0x1p100 /* a float, and far above what an fp16 gradient bears unless all are zero */

struct loss_scale loss_scale_of(const struct job *job)
{
    const struct fp16 *f = &job->fp16;
    double scale = !f->enabled ? 1 : f->loss_scale > 0 ? f->loss_scale : ldexp(1, (int)f->initial_scale_power);

    return (struct loss_scale){.scale = scale, .hysteresis = f->hysteresis};
}

int loss_scale_dynamic(const struct job *job)
{
    return job->fp16.enabled && job->fp16.loss_scale <= 0;
}

static int overflowed(struct loss_scale *s, const struct fp16 *f)
{
    s->good_steps = 0;
    if (s->hysteresis > 1) {
        s->hysteresis--;
        return 0;
    }
    if (s->scale <= f->min_loss_scale)
        return -1;
    s->scale = fmax(s->scale / 2, f->min_loss_scale);
    return 0;
}

int loss_scale_step(struct loss_scale *s, const struct job *job, int overflow)
{
    const struct fp16 *f = &job->fp16;

    if (!loss_scale_dynamic(job))
        return 0;
    if (overflow)
        return overflowed(s, f);
    if (f->consecutive_hysteresis)
        s->hysteresis = f->hysteresis;
    if (s->good_steps > 0 && s->good_steps % f->window == 0) {
        s->hysteresis = f->hysteresis;
        s->scale = fmin(s->scale * 2, SCALE_MAX);
    }
    s->good_steps++;
    return 0;
}
