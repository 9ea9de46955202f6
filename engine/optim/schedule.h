/* Learning-rate schedules. Pure. Formulas: DeepSpeed's WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle and
 * LRRangeTest, as written out in ds-job(5), except that the first optimizer step uses index 0. */
#ifndef DS_SCHEDULE_H
#define DS_SCHEDULE_H

#include "engine/base/job.h"

/* The learning rate at schedule index i >= 0 (samples of applied updates / train_batch_size; fractions
 * occur when the batch size changed). total: the run's length in steps, used where
 * scheduler.params.total_num_steps is 0. */
double schedule_lr(const struct job *job, double i, double total);

/* Does the first moment's decay change with the steps (OneCycle, on an optimizer that has betas)? */
int schedule_cycles_momentum(const struct job *job);
/* The decay of the first moment at schedule index i, or SGD's momentum: constant unless it cycles. */
double schedule_momentum(const struct job *job, double i);

/* Parameters that contradict each other; err is a sentence. */
int schedule_check(const struct job *job, struct err *err);

#endif
