/* The optimizers: which moments each keeps, and which kernel steps it (formulas: kernels.h). Pure. */
#ifndef DS_OPTIM_H
#define DS_OPTIM_H

#include "engine/base/job.h"
#include "kernels/kernels.h"

enum optim_moments { OPTIM_M = 1, OPTIM_V = 2 };

typedef void optim_step(const struct ds_update *, const struct ds_scalars *, struct ds_stream *);

struct optim {
    const char *name;
    unsigned moments;  /* enum optim_moments, the most that it keeps */
    int has_betas;     /* momentum may cycle with the learning rate (OneCycle) */
    int per_tensor;    /* looks at the norms of whole tensors: Lamb's two kernels, step NULL */
    double beta1, beta2, eps; /* defaults, those of the papers and of PyTorch */
    optim_step *(*step)(const struct kernels *);
};

/* The optimizer of a job; static. */
const struct optim *optim_of(const struct job *);
/* 1 when the job's optimizer keeps this moment: SGD has m only with momentum. */
int optim_moment(const struct job *, enum optim_moments);
/* ds_update.variant of the job. */
int optim_variant(const struct job *);
/* Puts the optimizer's own defaults where the job file says nothing, and refuses what it has no use for. */
int optim_defaults(struct job *, const struct settings *, struct err *);

#endif
