/* How far an engine job is, from the metric objects of rank 0: one live line for a person, now and then a plain
 * line for a pipe, and what the closing summary says. Pure: text out, time in. */
#ifndef DS_PROGRESS_H
#define DS_PROGRESS_H

#include "engine/base/buf.h"

#include <stdint.h>

struct progress {
    double step, max_steps, tokens, tokens_per_s, step_ms;
    double loss, first_loss, valid_loss; /* NaN where a step's was not finite; first: the first that was */
    double skipped;                      /* steps left out because of that */
    double tokens_first; /* tokens done before the first step seen: what a resumed run began with */
    int64_t first_ms, last_ms; /* when the first and the newest step came */
    double first_step;
    int64_t mark_ms;       /* the rate shown is measured from here: a few seconds back */
    double mark_tokens, rate;
    double valid_step;     /* the step that valid_loss is of */
    int steps, have_valid; /* steps: of this run */
    int64_t plain_ms; /* when the last plain line was given out */
    double plain_step;
};

#define PROGRESS_INIT {0}

/* Takes one metric object. 1: it was a step; 2: an evaluation; 0: something else; -1: no valid object. */
int progress_take(struct progress *p, const char *json, size_t n, int64_t now_ms);
/* The line: "step 120/3000  loss 2.134  41.2k tok/s  3m12s left  2 nodes", at most width columns. */
void progress_line(const struct progress *p, int nodes, int width, struct buf *out);
/* What a pipe gets after an evaluation: "step 120/3000  valid 2.201". */
void progress_valid(const struct progress *p, struct buf *out);
/* 1 when a pipe should get a plain line now: the first and last step, multiples of `every` steps (0: none), and at
 * least one a minute. */
int progress_due(struct progress *p, int64_t every, int64_t now_ms);
/* Tokens per second over the whole run, without its first step. 0: too few steps. */
double progress_rate(const struct progress *p);
/* "41.2k" */
void progress_count(double v, struct buf *out);
void progress_time(double seconds, struct buf *out);

#endif
