/* Checkpoints: safetensors files of fragments of global tensors, and a manifest (DESIGN 4.6).
 *
 * RUN/ckpt/step-N/rank-R.safetensors, manifest.json last, then RUN/ckpt/latest. Everything is
 * written under a temporary name, synced and renamed. World size and mesh are information: any
 * world reads any checkpoint. FORMAT: engine/ckpt/FORMAT.md.
 */
#ifndef DS_CKPT_H
#define DS_CKPT_H

#include "engine/base/boot.h"
#include "engine/base/settings.h"

#include <stdint.h>

/* A range of one global tensor, fp32. */
struct ckpt_entry {
    const char *name; /* "block.0.attn.qkv.q" */
    const char *kind; /* w, m, v, mom, sum, ef */
    int ndim;
    uint64_t shape[4];     /* global */
    uint64_t first, count; /* elements, flattened */
    float *data;           /* count elements: read on save, filled on load; borrowed */
};

struct ckpt_meta {
    int64_t step, update, samples; /* attempts, applied, consumed */
    int64_t applied; /* samples of applied updates: what the schedule is a function of */
    double loss_scale;
    int64_t good_steps, hysteresis;
    uint64_t seed, data_hash, config_hash;
    int world, threads;
    char mesh[64], isa[32], build[64];
    char *config; /* the job's settings as INI text: enough to rebuild the model; owned */
    double loss, valid_loss; /* last known; NaN: none */
};
void ckpt_meta_clear(struct ckpt_meta *);

/* ---- writing: collective over boot, in the background ---- */

struct ckpt_writer;
/* dir: RUN/ckpt. keep: newest checkpoints kept (older deleted after a new one is committed), 0 =
 * all. One background thread. */
int ckpt_writer_create(struct ckpt_writer **, const char *dir, struct boot *, int64_t keep,
                       struct err *);
/* Waits for a save under way end with an error (ERR_RANK_ABORT, ERR_JOB_IO) when the abort word is set, which is seen
 * within a second, or after an hour. */
/* Copies the entries into an image (waits first for the save before it), returns, writes behind.
 * tensors: every global tensor of the model (first 0, count total), same on all ranks; the
 * manifest's coverage. */
int ckpt_save(struct ckpt_writer *, const struct ckpt_meta *, const struct ckpt_entry *entries,
              int n, const struct ckpt_entry *tensors, int ntensors, struct err *);
/* Result of the last finished save: 1 committed, 0 none finished since the last call, -1 failed
 * (disk full: the older checkpoint is whole; err says so). block: wait for the one under way. step:
 * which. */
int ckpt_poll(struct ckpt_writer *, int block, int64_t *step, struct err *);
/* Memory that the image takes. */
uint64_t ckpt_writer_bytes(const struct ckpt_writer *);
/* Waits for the save under way. One that hangs is left behind: boot must live until the process ends, or the save. */
void ckpt_writer_destroy(struct ckpt_writer *);

/* ---- reading ---- */

struct ckpt;
/* Does this ckpt folder hold something to open: `latest`, or a step folder with a manifest? A save that was cut off
 * between the two leaves only the second. */
int ckpt_exists(const char *dir);
/* path: a step folder, a ckpt folder or a run folder (then what `latest` names, or the whole one
 * of the highest step when that is broken). Checks manifest, headers, sizes, coverage; not yet the data. */
int ckpt_open(struct ckpt **, const char *path, struct err *);
/* The whole one of the highest step before this one, in a ckpt folder or a run folder. */
int ckpt_open_before(struct ckpt **, const char *path, int64_t step, struct err *);
void ckpt_close(struct ckpt *);
const struct ckpt_meta *ckpt_meta(const struct ckpt *);
const char *ckpt_path(const struct ckpt *); /* the step folder */
/* The hash that seals its manifest: two checkpoints of equal contents have the same, other ones do not. */
uint64_t ckpt_seal(const struct ckpt *);
/* Why it is not the one that `latest` names; NULL when it is, or when a step folder was asked for. */
const char *ckpt_passed_over(const struct ckpt *);
int ckpt_tensors(const struct ckpt *,
                 const struct ckpt_entry **list); /* whole tensors, data NULL */
/* Fills every entry from the files that hold it, reading only fragments that overlap. Each of them
 * is held against its hash. Missing ranges and mismatched shapes are errors that name the tensor.
 */
int ckpt_read(struct ckpt *, struct ckpt_entry *entries, int n, struct err *);

/* ds-rank ckpt inspect|verify DIR. Returns the exit status. */
int ckpt_main(int argc, char **argv);

#endif
