/* The job file: every setting of a run in one struct, one table (job.c), read by the front end and by
 * every rank. Keys that DeepSpeed has carry DeepSpeed's path; [model], [parallel], [data], [run] and
 * [launch] are ours. */
#ifndef DS_BASE_JOB_H
#define DS_BASE_JOB_H

#include "engine/base/settings.h"

enum model_form { MODEL_GPT2, MODEL_LLAMA };
enum run_on_nan { ON_NAN_STOP, ON_NAN_SKIP };
enum data_kind { DATA_AUTO, DATA_TEXT, DATA_BIN };
enum sched_type {
    SCHED_NONE,
    SCHED_WARMUP_LR,
    SCHED_WARMUP_DECAY,
    SCHED_WARMUP_COSINE,
    SCHED_ONE_CYCLE,
    SCHED_RANGE_TEST
};
enum warmup_type { WARMUP_LOG, WARMUP_LINEAR };
enum optim_type { OPTIM_ADAMW, OPTIM_ADAM, OPTIM_LION, OPTIM_ADAGRAD, OPTIM_SGD, OPTIM_LAMB };
enum zero_overlap { OVERLAP_AUTO, OVERLAP_OFF, OVERLAP_ON };

/* launch.bind_to: its words in job_table.c, in this order. */
enum bind_to {
    BIND_AUTO, /* as core where there is a core for each rank, else a processor each, else not at all */
    BIND_NONE,
    BIND_CORE,   /* an equal share of the cores, whole cores with all their processors */
    BIND_NUMA,   /* all cores of one NUMA node: that of the rank's GPU, else nodes in turn */
    BIND_SOCKET, /* the same with sockets */
};

struct job {
    /* top level, DeepSpeed's names */
    int64_t train_batch_size, micro_batch_size, accumulation; /* 0: to be filled, see job_batch */
    int64_t steps_per_print;
    int wall_clock_breakdown, memory_breakdown; /* tables at the end of the run */
    double gradient_clipping; /* 0: off */
    int prescale_gradients;
    double predivide;         /* with prescale_gradients: gradients travel divided by it */
    /* [optimizer] [scheduler] [bf16] [fp16] [zero_optimization] */
    int optim, adam_w_mode; /* Adam with adam_w_mode (the default) is AdamW, as in DeepSpeed */
    double lr, eps, weight_decay;
    struct setting_list betas;
    double momentum;             /* SGD */
    int nesterov;
    char *no_decay, *lr_mul;     /* by patterns of parameter names: struct param_rules */
    double min_coeff, max_coeff; /* Lamb's trust ratio lies between */
    int sched, warmup_type;
    double warmup_min_lr, warmup_max_lr, warmup_min_ratio, cos_min_ratio;
    int64_t warmup_num_steps, total_num_steps;
    struct one_cycle {
        double min_lr, max_lr, decay_lr_rate, min_mom, max_mom, decay_mom_rate;
        int64_t first, second, first_stairs, second_stairs, decay_step; /* second, second_stairs -1: as the first */
        int momentum;
    } cycle;
    struct lr_range_test {
        double min_lr, rate;
        int64_t step;
        int staircase;
    } range;
    int bf16;
    struct fp16 {
        int enabled, consecutive_hysteresis;
        double loss_scale, min_loss_scale; /* loss_scale 0: dynamic */
        int64_t initial_scale_power, window, hysteresis;
    } fp16;
    int64_t zero_stage;
    int overlap_comm; /* enum zero_overlap */
    int64_t reduce_bucket, gather_bucket;                         /* elements */
    int64_t prefetch_bucket, max_live, max_reuse, persist, persist_total; /* stage 3, elements */
    int64_t hpz; /* ranks that hold a second copy of the weights together; 1: none */
    struct recompute { /* activation_checkpointing: which activations are made again */
        int64_t interval, number;
        int selective;
    } recompute;
    /* [model]: the built-in layers' own table, engine/model/config.h, is applied beside this one */
    char *layers;  /* "embedding, block*4, norm, head"; NULL: from form and n_layer */
    char *preset;  /* a file under templates/models, or a path; its rows come first */
    char *freeze;  /* comma-separated glob patterns of parameter names */
    /* [parallel] */
    int64_t data, tensor, pipeline, sequence; /* 0 = auto (data fills the rest, others 1) */
    /* [data] */
    char *train, *valid; /* paths or globs, comma-separated; valid NULL: split from train */
    int data_kind;
    double valid_split;  /* share of the documents or bytes at the end, when valid is NULL */
    int64_t seq_len;     /* T, tokens per sample */
    int doc_mask;        /* attention stops at document bounds */
    int64_t doc_token;   /* token id that begins a document; -1: none */
    /* [run] */
    int64_t seed;
    int64_t max_steps, max_samples, max_tokens, max_time_ms; /* 0: no such limit; first reached ends */
    int64_t eval_every, eval_samples, save_every, keep;
    int on_nan;
    char *run_dir;    /* NULL: ./ds-runs/NAME-TIME */
    char *name;       /* NULL: the job file's base name */
    char *init_from;  /* checkpoint for weights only */
    char *resume;     /* checkpoint or run folder to go on from; "auto": the run folder's latest */
    char *program;    /* rank program; NULL: the installed ds-rank */
    int64_t threads;  /* compute threads per rank; 0: ENGINE 9's rule */
    int64_t comm_timeout_ms;
    /* [launch] */
    char *hostfile, *include, *exclude, *launcher, *master_addr, *interface, *bind_core_list;
    int bind_to; /* enum bind_to */
    int64_t num_nodes, ranks_per_node, master_port, grace_ms, connect_timeout_ms, ping_limit_ms;
};

extern const struct setting job_table[];
extern const int job_table_n;

/* Reads a job file, puts the rows of [model] preset (found as a path, or NAME.ini in the templates/models
 * folder: DS_TEMPLATES, else that of the build or installed tree that the program lies in, else the installed one)
 * before its own, so that the file's own keys win. */
int job_read(struct settings_rows *rows, const char *path, struct err *err);

/* Batch triangle: train_batch_size = micro x accumulation x data-parallel size. Fills what was not
 * given; a product that does not hold is one error naming all four numbers and the nearest combination
 * that does. */
int job_batch(struct job *job, const struct settings *s, int64_t data_size, struct err *err);

#endif
