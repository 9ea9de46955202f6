/* Model states of one rank and what a step does with them: gradients reduced over the data ranks, the
 * global norm, the optimizer.
 *
 * Stage 0: every rank holds all weights, gradients, masters and moments. Bytes per parameter (ENGINE 3):
 * fp32 16 (the weight is its own master), bf16 2 + 4 + 12 = 18.
 *
 * Buffers hold all flats of the parameter table one after the other (param_flat.base). Padding is zero
 * and stays zero.
 */
#ifndef DS_ZERO_H
#define DS_ZERO_H

#include "engine/base/job.h"
#include "engine/comm/comm.h"
#include "engine/device/device.h"
#include "engine/param/param.h"

struct zero {
    const struct param_table *table;
    const struct kernels *k;
    struct device *dev;
    struct comm *comm; /* the data group */
    enum ds_dtype dtype;
    void *weight;      /* table->total elements, compute type; fp32: the same memory as master */
    float *grad;       /* raw sums of this rank, after zero_reduce of all ranks; comm's memory */
    float *master, *m, *v;
    const struct job *job;
};

/* Allocates; contents are zero. Collective. */
int zero_create(struct zero **, const struct param_table *, const struct kernels *, struct device *,
                struct comm *, const struct job *, enum ds_dtype dtype, struct err *);
void zero_destroy(struct zero *); /* before its comm */

/* First weights from the seed; then zero_refresh. */
void zero_init(struct zero *, uint64_t seed);
/* Weights of the compute type from the masters. */
void zero_refresh(struct zero *);

/* Sums the gradients over the data ranks, and in the same group n doubles of sums and 2 doubles of maxima.
 * Waits. */
int zero_reduce(struct zero *, double *sums, int n, double peak[2], struct err *);

/* Norm of grad: fp64 partials per slice, added in (flat, rank) order, over distinct parameters that are
 * not frozen. *bad: a gradient was not finite. tensor (may be NULL): the first such tensor's name. */
double zero_norm(struct zero *, int *bad, const char **tensor);

/* One AdamW update of every parameter that is not frozen; weights refreshed in the same pass. */
void zero_update(struct zero *, const struct ds_scalars *);

/* Bytes that the states take, by the formula of ENGINE 3 (for the start table). */
void zero_bytes(uint64_t numel, enum ds_dtype dtype, uint64_t out[MEM_CLASSES]);

#endif
