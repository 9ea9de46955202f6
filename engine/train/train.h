/* The training loop of one rank. train.c: life of a run; step.c: one step and evaluation; state.c:
 * checkpoints; account.c: what a step spends; report.c, breakdown.c: what the front end is told. */
#ifndef DS_TRAIN_H
#define DS_TRAIN_H

#include "engine/base/link.h"
#include "engine/ckpt/ckpt.h"
#include "engine/comm/comm.h"
#include "engine/optim/scale.h"
#include "engine/train/exec.h"
#include "engine/train/setup.h"
#include "engine/zero/zero.h"

#include <math.h>

struct micro_batch { /* (B, T) arrays of one micro-batch, owned */
    int64_t B, T;
    int32_t *token, *target, *pos, *doc;
    uint64_t *sample;
};

/* Where the time goes: a step from data to other, and what is done between steps. */
enum train_time { TIME_DATA, TIME_FORWARD, TIME_BACKWARD, TIME_WAIT, TIME_REDUCE, TIME_UPDATE, TIME_OTHER,
                  STEP_TIMES, TIME_EVAL = STEP_TIMES, TIME_SAVE, TIMES };
enum train_group { GROUP_DATA, GROUP_NEAR, GROUPS }; /* all ranks; those of zero_hpz_partition_size */
extern const char *const time_name[TIMES], *const group_name[GROUPS];

/* What one rank has spent over some steps; numbers of 64 bits only. */
struct account {
    int64_t steps, step_ns, ns[PHASE_DONE]; /* ns by enum rank_phase */
    int64_t wait_ns;                        /* of forward and backward, for gathers and scatters; not in ns */
    struct comm_counters traffic[GROUPS];   /* of the steps alone */
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
    struct loss_scale scale; /* of the next step */
    int threads;

    int64_t step, update, samples, applied; /* attempts, applied updates, consumed samples, samples of
                                             * applied updates */
    uint64_t image_bytes;                   /* of the writer, counted */
    int64_t saved_step;                     /* newest step given to the writer */
    int64_t from_step;                      /* of the checkpoint that the run began with; -1: none */
    uint64_t from_seal;                     /* and which one of that step */
    struct err save_err;                    /* how the newest finished save failed, if it did */
    int64_t skipped, in_a_row;              /* steps left out because of NaN or Inf; the newest of them */
    double loss, grad_norm, valid_loss;     /* of the last step; of the last evaluation */
    enum stop_why stop;                     /* agreed by all ranks at the end of a step */
    int64_t begin_ns, step_ns;

    struct account spent, mark, last; /* in this run; until the end of the last step; since the one before */
    struct comm_counters traffic[GROUPS]; /* when the step began */
    enum rank_phase phase;                /* since phase_ns, when the stream had waited for waited_ns */
    int64_t phase_ns, waited_ns;
};

/* ---- step.c ---- */

/* One step: micro-batches, reduction, norm, update. Everything a topology may not change is a function of
 * t->samples. 0, or -1: the rank must end. */
int train_step(struct train *, struct err *);
/* Mean loss over the fixed validation positions, dropout off; the same number on every rank. */
int train_eval(struct train *, double *loss, struct err *);
int train_batch_init(struct micro_batch *, int64_t B, int64_t T);
void train_batch_clear(struct micro_batch *);

/* ---- account.c ---- */

/* The phase that begins now; PHASE_START: none. */
void train_phase(struct train *, enum rank_phase);
/* Around a step; the end sets step_ns. */
void train_account_begin(struct train *);
void train_account_end(struct train *, int64_t begin_ns);
/* Milliseconds a step by enum train_time: the first STEP_TIMES add up to the step. */
void account_ms(const struct account *, double ms[TIMES]);
/* Bytes a step that an operation of a group has sent and received. */
void account_bytes(const struct account *, enum train_group, int op, double bytes[2]);

/* ---- origin.c ---- */

/* The path that the run goes on from: run.resume, for auto the run folder if it has a checkpoint. Owned; NULL: none. */
char *train_origin(const struct job *);
/* 0 when the checkpoint is of the run that s describes; else err names the settings that differ. */
struct ckpt;
int train_same_run(const struct setup *s, const struct ckpt *, struct err *);

/* ---- state.c ---- */

int train_save(struct train *, struct err *);                          /* in the background */
/* Everything. Of a run folder, where the newest checkpoint is damaged on any rank, all read an older one. */
int train_resume(struct train *, const char *path, struct err *);
int train_init_from(struct train *, const char *path, struct err *);   /* weights only, step 0 */

/* ---- report.c: rank 0 speaks, the others return ---- */

void train_report_start(struct train *);
void train_report_step(struct train *);
void train_report_eval(struct train *);
void train_report_text(struct train *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void train_report_record(struct train *t, const char *json); /* a line of metrics.jsonl */
void train_report_restore(struct train *, int64_t step);
void train_report_snapshot(struct train *, int64_t step);

/* ---- breakdown.c ---- */

/* At the end of a run: what all ranks have spent as a table and one record, as far as wall_clock_breakdown and
 * memory_breakdown ask for it. Collective then. */
int train_report_breakdown(struct train *, struct err *);

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
