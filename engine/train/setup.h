/* What a rank, `ds-rank check` and `ds-rank sample` have in common: from the job's rows to data, model,
 * parameter table and mesh. Nothing big is allocated and nothing is sent. */
#ifndef DS_SETUP_H
#define DS_SETUP_H

#include "engine/base/job.h"
#include "engine/data/data.h"
#include "engine/mesh.h"
#include "engine/model/model.h"
#include "engine/param/param.h"
#include "engine/zero/order.h"

struct setup {
    struct settings_rows rows; /* the job's, with what was filled in from the data */
    struct job job;
    struct settings settings;
    struct data *data; /* NULL: opened without */
    struct model *model;
    struct param_table *table;
    struct order *order; /* in which the layers are used */
    struct mesh mesh;
    enum ds_dtype dtype;
    int64_t total_steps; /* of the run, from the limits that are given in steps, samples or tokens; 0: by
                          * time alone */
};

/* rows are copied. with_data 0: data files are not opened (sampling); the vocabulary must be in the rows.
 * Errors are the user's (ERR_INPUT) and complete sentences. */
int setup_create(struct setup **, const struct settings_rows *rows, int world, int with_data,
                 struct buf *warn, struct err *);
void setup_destroy(struct setup *);

/* What makes two runs the same run: the IDENTITY settings of the job and of the model's layers. */
uint64_t setup_hash(const struct setup *);

/* 1234567 as "1.23 M"; returns out. */
const char *human(double n, char out[32]);

/* Tokens that one step takes. */
int64_t setup_tokens_per_step(const struct setup *);

/* The start table: model, batch, memory of a rank, data, length of the run and, when flops_per_s > 0, its
 * estimated time. activation_bytes from exec_bytes; done: steps that a resumed run has behind it. */
void setup_table(const struct setup *, size_t activation_bytes, int64_t done, int64_t flops_per_step,
                 double flops_per_s, int threads, struct buf *out);

#endif
