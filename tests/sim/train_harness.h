/* Training jobs with N ranks in one process (comm thread), for the tests of what a run computes and keeps. */
#ifndef DS_TESTS_SIM_TRAIN_HARNESS_H
#define DS_TESTS_SIM_TRAIN_HARNESS_H

#include "engine/train/train.h"

/* A folder of the test program's own, and a text in it with some structure; made and taken away by the group's set-up
 * and teardown. */
extern char harness_dir[64], harness_text[96];
int harness_begin(void **state);
int harness_end(void **state);

/* The job file `base` (then `more`, or NULL) on that text, with NULL-terminated pairs of path and value on top. */
struct settings_rows harness_rows(const char *base, const char *more, const char *path, ...);
struct settings_rows harness_with(const struct settings_rows *rows, const char *path, const char *value);

/* ---- ranks ---- */

struct harness_rank {
    const struct settings_rows *rows;
    int (*body)(struct train *, void *arg, struct err *); /* between train_create and train_destroy */
    void *arg;
    struct boot *boot; /* by harness_run */
    struct err err;    /* what it ended with; rc -1 */
    int rc;
};

/* Runs n ranks in threads until all have ended. The first rank of each `nodes`-th part speaks TCP to the others. */
void harness_run(struct harness_rank *, int n, int nodes);
/* The same in a world that the caller made and ends. */
void harness_run_in(struct boot_world *, struct harness_rank *, int n);
/* Fails the test with the sentence of a rank that did not end well. */
void harness_ended_well(const struct harness_rank *, int n);

/* ---- the curve of a run ---- */

#define HARNESS_STEPS 24

struct result {
    double loss[HARNESS_STEPS], norm[HARNESS_STEPS], lr[HARNESS_STEPS], valid;
    double state_bytes, numel;
    float *weight, *first; /* masters after the run and before it, every tensor in table order */
    uint64_t n, *end;      /* elements; where each tensor ends */
    int tensors;
    int64_t samples;
    uint64_t hash; /* of the compute weights after the run, padding included */
};

/* A job of 24 steps of 12 samples that each test changes. */
extern const char harness_job[];
/* Trains on `world` ranks up to a step; every rank must end with the same weights (law c). */
struct result harness_train(int world, int64_t steps, const struct settings_rows *rows);
/* One rank that may fail; result NULL: not wanted. */
struct harness_rank harness_alone(const struct settings_rows *rows, int64_t steps, struct result *result);
/* The body of such a rank; arg: struct curve. */
struct curve {
    int64_t steps;         /* step to stop at */
    struct result *result; /* NULL: only trained; its masters are this rank's, 0 elsewhere */
    uint64_t hash;         /* of what all ranks hold at the end */
    char *slices;          /* compute weights at the end: this rank's slices, flat after flat; owned */
    size_t bytes;
};
int harness_curve(struct train *, void *curve, struct err *);
void result_clear(struct result *);

/* ENGINE 7's bounds: loss 1e-5 (fp32) or 1e-2 (16 bits) relative, weights 1e-3 or 5e-2 of the way they went. */
void assert_close(const struct result *a, const struct result *b, int steps, int narrow);
/* The second alone, for every tensor of the masters. */
void assert_weights_close(const struct result *a, const struct result *b, int narrow);
/* Every bit of steps [from, to) and of the weights. */
void assert_same(const struct result *a, const struct result *b, int from, int to);

#endif
