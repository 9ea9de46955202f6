/* The training loop of one rank. train.c: life of a run; step.c: one step and evaluation; state.c:
 * checkpoints; report.c: what the front end is told. */
#ifndef DS_TRAIN_H
#define DS_TRAIN_H

#include "engine/base/link.h"
#include "engine/ckpt/ckpt.h"
#include "engine/comm/comm.h"
#include "engine/train/exec.h"
#include "engine/train/setup.h"
#include "engine/zero/zero.h"

#include <math.h>

struct micro_batch { /* (B, T) arrays of one micro-batch, owned */
    int64_t B, T;
    int32_t *token, *target, *pos, *doc;
    uint64_t *sample;
};

struct train {
    struct setup *setup; /* borrowed */
    struct link *link;   /* NULL in tests: nothing is reported */
    struct boot *boot;
    const struct kernels *k;
    struct device *dev;
    struct comm *comm;   /* all ranks; the data group */
    struct zero *zero;
    struct exec *exec;
    struct ckpt_writer *writer; /* NULL: no run folder */
    struct micro_batch batch;
    struct ds_scalars scalars;
    int threads;

    int64_t step, update, samples, applied; /* attempts, applied updates, consumed samples, samples of
                                             * applied updates */
    int64_t saved_step;                     /* newest step given to the writer */
    int64_t from_step;                      /* of the checkpoint that the run began with; -1: none */
    struct err save_err;                    /* how the newest finished save failed, if it did */
    int64_t skipped, in_a_row;              /* steps left out because of NaN or Inf; the newest of them */
    double loss, grad_norm, valid_loss;     /* of the last step; of the last evaluation */
    enum stop_why stop;                     /* agreed by all ranks at the end of a step */
    int64_t begin_ns, step_ns;
};

/* ---- step.c ---- */

/* One step: micro-batches, reduction, norm, update. Everything a topology may not change is a function of
 * t->samples. 0, or -1: the rank must end. */
int train_step(struct train *, struct err *);
/* Mean loss over the fixed validation positions, dropout off; the same number on every rank. */
int train_eval(struct train *, double *loss, struct err *);
int train_batch_init(struct micro_batch *, int64_t B, int64_t T);
void train_batch_clear(struct micro_batch *);

/* ---- state.c ---- */

int train_save(struct train *, struct err *);                          /* in the background */
int train_resume(struct train *, const char *path, struct err *);      /* everything */
int train_init_from(struct train *, const char *path, struct err *);   /* weights only, step 0 */

/* ---- report.c: rank 0 speaks, the others return ---- */

void train_report_start(struct train *);
void train_report_step(struct train *);
void train_report_eval(struct train *);
void train_report_text(struct train *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void train_report_snapshot(struct train *, int64_t step);

/* ---- train.c ---- */

/* A run from its set-up to its end, collective over boot. link may be NULL. */
int train_create(struct train **, struct setup *, struct boot *, struct link *, struct err *);
int train_run(struct train *, struct err *);
void train_destroy(struct train *);

/* ds-rank without arguments. Returns the exit status. */
int train_main(void);
/* ds-rank check FILE [--world N]. */
int train_check_main(int argc, char **argv);
/* ds-rank lr FILE [-n STEPS]. */
int train_lr_main(int argc, char **argv);

/* Compute threads of this rank: [run] threads, else OMP_NUM_THREADS, else the cores it may use divided by
 * the ranks of its agent. Sets up this thread's team. */
int train_threads(const struct job *, int local_ranks);
/* The team of the calling thread: its size, and setting it (flush-to-zero included). */
int train_team_size(void);
void train_team_set(int threads);
/* Floating point operations a second of a matrix product of this type, measured for a moment. */
double train_flops_per_s(const struct kernels *, enum ds_dtype);

#endif
