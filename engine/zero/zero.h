/* Model states of one rank and what a step does with them: gradients reduced over the data ranks, the
 * global norm, the optimizer.
 *
 * A flat buffer of the parameter table is cut into one slice per data rank. A rank *holds* the master and the
 * optimizer's moments of all slices (stage 0) or of its own (stage 1). Bytes per parameter (ENGINE 3), N data
 * ranks, two moments (Adam, Lamb); 4, or 4/N, less for each moment that an optimizer has not:
 *
 *              fp32 (the weight is its own master)   bf16
 *   stage 0    16                                    2 + 4 + 12 = 18
 *   stage 1    8 + 8/N                               6 + 12/N
 *
 * weight and grad hold all flats one after the other (param_flat.base). Padding is zero and stays zero.
 */
#ifndef DS_ZERO_H
#define DS_ZERO_H

#include "engine/base/job.h"
#include "engine/comm/comm.h"
#include "engine/device/device.h"
#include "engine/optim/optim.h"
#include "engine/param/param.h"

enum zero_kind { ZERO_W, ZERO_M, ZERO_V, ZERO_KINDS };

struct zero {
    const struct param_table *table;
    const struct job *job;
    const struct optim *optim;
    const struct kernels *k;
    struct device *dev;
    struct comm *comm;        /* the data group */
    enum ds_dtype dtype;
    int first, nslices;       /* slices held: [first, first + nslices) */
    void *weight;             /* table->total elements, compute type; fp32: holds the masters too */
    float *grad;              /* table->total: this rank's raw sums; after zero_reduce those of all
                               * ranks in the slices held */
    float *state[ZERO_KINDS]; /* slices held, flat after flat; state[ZERO_W] NULL in fp32, a moment that the
                               * optimizer has not is NULL */
    uint64_t *at;             /* [nflats] where a flat begins in state */
    struct coll *group;       /* [nflats + 2] and */
    double *partial;          /* [ranks][nflats + 1] and */
    double *trust;            /* [ntensors][2] of Lamb: a step allocates nothing */
};

/* Allocates; contents are zero. Collective. */
int zero_create(struct zero **, const struct param_table *, const struct kernels *, struct device *,
                struct comm *, const struct job *, enum ds_dtype dtype, struct err *);
void zero_destroy(struct zero *); /* before its comm; NULL is fine */

/* Does the optimizer have this state? Masters it always has. */
int zero_has(const struct zero *, enum zero_kind);
/* Slice `rank` of a flat, fp32; the rank must be one that is held, and the kind one that zero_has. */
float *zero_slice(const struct zero *, enum zero_kind, int flat, int rank);

/* First weights from the seed. Follow with zero_refresh. */
void zero_init(struct zero *, uint64_t seed);
/* Weights of the compute type from the masters, everywhere. Collective from stage 1 on. */
int zero_refresh(struct zero *, struct err *);

/* Sums the gradients over the data ranks, and in the same group n doubles of sums and 2 doubles of maxima.
 * Waits. */
int zero_reduce(struct zero *, double *sums, int n, double peak[2], struct err *);

/* *norm of the gradients: fp64 partials per slice, added in (flat, rank) order, over distinct parameters that
 * are not frozen; the same bits on every rank. *bad: a gradient was not finite. *tensor: the first such
 * tensor that this rank knows of, or NULL. Collective from stage 1 on. */
int zero_norm(struct zero *, double *norm, int *bad, const char **tensor, struct err *);

/* One update of every parameter that is not frozen; weights refreshed in the same pass, and gathered from
 * stage 1 on (collective). */
int zero_update(struct zero *, const struct ds_scalars *, struct err *);

/* Bytes that the states take by the formula above (for the start table). */
void zero_bytes(const struct job *, uint64_t numel, enum ds_dtype dtype, int ranks, uint64_t out[MEM_CLASSES]);

#endif
