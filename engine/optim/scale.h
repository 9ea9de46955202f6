/* The loss scale of fp16: backward is seeded with it, so that small gradients are not lost to 0, and the optimizer
 * divides by it. Where a gradient overflows nevertheless, the step is left out.
 *
 * The dynamic scale follows DeepSpeed's rule for ZeRO (DynamicLossScaler): an overflow halves it, once `hysteresis`
 * overflows have been spent; it doubles at a good step with a whole number of windows of good steps before it, and
 * that gives the hysteresis back (with consecutive_hysteresis every good step does). */
#ifndef DS_SCALE_H
#define DS_SCALE_H

#include "engine/base/job.h"

struct loss_scale {
    double scale;       /* 1 without fp16 */
    int64_t good_steps; /* since the last overflow, or the start */
    int64_t hysteresis; /* the overflow that finds 1 here halves the scale, each one before it takes 1 away */
};

/* Where a run begins. */
struct loss_scale loss_scale_of(const struct job *);
/* Does the scale answer an overflow? Else it is constant: a static one, or no fp16. */
int loss_scale_dynamic(const struct job *);
/* After a step that overflowed or was good. 0; -1: it overflowed at the floor, where no step can mend it. */
int loss_scale_step(struct loss_scale *, const struct job *, int overflow);

#endif
