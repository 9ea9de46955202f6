/* Model states of one rank and what a step does with them: gradients reduced over the data ranks, the
 * global norm, the optimizer.
 *
 * A flat buffer of the parameter table is cut into one slice per data rank. A rank *holds* the master and the
 * optimizer's moments of all slices (stage 0) or of its own (from stage 1 on), from stage 2 on only its own
 * slices of the gradients, in stage 3 only its own slices of the weights. Bytes per parameter (ENGINE 3), N data
 * ranks, two moments (Adam, Lamb); 4, or 4/N, less for each moment that an optimizer has not:
 *
 *              fp32 (the weight is its own master)   bf16, fp16
 *   stage 0    16                                    2 + 4 + 12 = 18
 *   stage 1    8 + 8/N                               6 + 12/N
 *   stage 2    4 + 12/N                              2 + 16/N
 *   stage 3    16/N                                  18/N
 *
 * Whole gradients of the layer in work (stages 2 and 3) and gathered weights (stage 3) lie in slots, buffers
 * of the size of one flat, whose number a walk through a step finds out beforehand. Padding is zero and stays
 * zero. One rank splits nothing: it is stage 0 whatever the job says.
 */
#ifndef DS_ZERO_H
#define DS_ZERO_H

#include "engine/base/job.h"
#include "engine/comm/comm.h"
#include "engine/device/device.h"
#include "engine/optim/optim.h"
#include "engine/param/param.h"
#include "engine/zero/order.h"

enum zero_kind { ZERO_W, ZERO_M, ZERO_V, ZERO_KINDS };

/* Buffers of the size of one flat: as many of a size as are in use at once. */
struct zero_slot {
    struct zero *zero;
    uint64_t elements;
    char *at;
    int flat, busy;        /* whose it is, or was: work that is queued still reads it */
    struct ds_event *last; /* its last reduction; NULL: none */
};
struct zero_pool {
    struct zero_slot *slot;
    int n, cap, turn; /* turn: the slot given last, so that they take turns */
};

struct zero_flat {
    uint64_t weight, grad, state; /* where it begins in weight, grad and state */
    int whole;                    /* all its weights are held all the time */
    int first, last;              /* layers that give to its gradient: the first and last in backward order */
    int weight_slot, grad_slot;   /* -1: none */
    struct ds_event *ready;       /* its gather; NULL: waited for */
    struct zero *zero;
    char *from;                   /* gathered weights that go to the second copy */
    uint64_t second;              /* where this rank's part of the second copy begins */
    int has_second;               /* it is that of the present weights */
};

/* Flats whose gathered weights a layer reads. */
struct zero_need {
    int *flat, *backward, n; /* backward[i]: read by backward too */
};

struct zero {
    const struct param_table *table;
    const struct order *order;
    const struct job *job;
    const struct optim *optim;
    const struct kernels *k;
    struct device *dev;
    struct comm *comm;        /* the data group */
    enum ds_dtype dtype;
    int stage;
    int first, nslices;       /* slices held: [first, first + nslices) */
    void *weight;             /* compute type; fp32: holds the masters too. All slices, in stage 3 the own */
    float *grad;              /* this rank's raw sums, after zero_reduce those of all ranks in the slices
                               * held; from stage 2 on the own slices alone */
    float *state[ZERO_KINDS]; /* slices held, flat after flat; state[ZERO_W] NULL in fp32, a moment that the
                               * optimizer has not is NULL */
    struct zero_flat *flat;   /* [nflats] */
    struct coll *group;       /* [nflats + 2] and */
    double *partial;          /* [ranks][nflats + 1] and */
    double *trust;            /* [ntensors][2] of Lamb: a step allocates nothing */

    /* from stage 2 on */
    int dry;                  /* the walk that counts: nothing is allocated or sent */
    int adds;                 /* this micro-batch adds to the gradients of earlier ones */
    int uses;                 /* of this pass: those of the order, without training only the forward ones */
    struct zero_need *need;   /* [nlayers] */
    struct zero_pool weights, grads;
    uint64_t live, fetched;   /* elements of gathered weights now, and of those sent in the dry walk */
    struct comm *near;        /* ranks that hold a second copy together; NULL: there is none */
    int nnear;
    char *second;             /* this rank's part of it, compute type */
    int64_t wait_ns, wait_from; /* what the compute stream spent on gathers, scatters and waiting for them; of
                                 * that stream until it is waited for */
    struct ds_event **event;  /* waited for by streams, to be freed */
    int nevents, cap_events;
};

/* Allocates; contents are zero. Collective. */
int zero_create(struct zero **, const struct param_table *, const struct order *, const struct kernels *,
                struct device *, struct comm *, const struct job *, enum ds_dtype dtype, struct err *);
void zero_destroy(struct zero *); /* before its comm; NULL is fine */

/* Does the optimizer have this state? Masters it always has. */
int zero_has(const struct zero *, enum zero_kind);
/* Slice `rank` of a flat, fp32; the rank must be one that is held, and the kind one that zero_has. */
float *zero_slice(const struct zero *, enum zero_kind, int flat, int rank);

/* First weights from the seed. Follow with zero_refresh. */
void zero_init(struct zero *, uint64_t seed);
/* Weights of the compute type from the masters, everywhere. Collective from stage 1 on. */
int zero_refresh(struct zero *, struct err *);

/* From stage 2 on, the weights and gradients of a layer are there between zero_enter and zero_leave around
 * its work, both called by the host in the order of the work on the compute stream. A pass is
 * zero_begin, then use 0, 1, .. of the order, without training only the forward ones; adds: to the
 * gradients of earlier micro-batches. zero_enter fills w and g[].data of the layer's parameters. */
void zero_begin(struct zero *, int training);
void zero_begin_backward(struct zero *, int adds);
int zero_enter(struct zero *, int use, void **w, struct ds_grad *g, struct err *);
int zero_leave(struct zero *, int use, struct err *);

/* Sums the gradients over the data ranks, where zero_leave has not, and in the same group n doubles of sums
 * and 2 doubles of maxima. Waits. */
int zero_reduce(struct zero *, double *sums, int n, double peak[2], struct err *);

/* The first tensor with a gradient that is not finite, and its first such value: "inf" or "NaN". */
struct zero_bad {
    const char *tensor, *kind; /* NULL: all are finite */
};
/* *norm of the gradients: fp64 partials per slice, added in (flat, rank) order, over distinct parameters that
 * are not frozen. Norm and *bad are the same on every rank. Collective from stage 1 on. */
int zero_norm(struct zero *, double *norm, struct zero_bad *bad, struct err *err);

/* One update of every parameter that is not frozen; weights refreshed in the same pass, and gathered from
 * stage 1 on (collective). */
int zero_update(struct zero *, const struct ds_scalars *, struct err *);

/* Of all communicators together. */
void zero_counters(const struct zero *, struct comm_counters *);

/* Bytes that the states and buffers of a rank take, and what it sends in one step (for the start table). */
void zero_bytes(const struct param_table *, const struct order *, const struct job *, enum ds_dtype dtype,
                uint64_t out[MEM_CLASSES]);
void zero_traffic(const struct param_table *, const struct order *, const struct job *, enum ds_dtype dtype,
                  uint64_t out[CLASSES]);

#endif
