/* The small model that the tests of checkpoints save: 4 tensors, each with two kinds. */
#ifndef DS_TESTS_CKPT_MODEL_H
#define DS_TESTS_CKPT_MODEL_H

#include "engine/ckpt/ckpt.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    int ndim;
    uint64_t shape[2], count;
} model[] = {{"embed.w", 2, {7, 5}, 35},
             {"block.0.b", 1, {6}, 6},
             {"block.0.w", 2, {6, 4}, 24},
             {"head.w", 1, {1}, 1}};
static const char *const kinds[] = {"w", "m"};
#define TENSORS 8 /* with kinds */

static inline float value_of(int tensor, uint64_t element, int64_t step)
{
    return (float)(tensor * 1000 + (int)element) + (float)step / 128;
}

static inline struct ckpt_entry entry_of(int t)
{
    struct ckpt_entry e = {.name = model[t / 2].name,
                           .kind = kinds[t % 2],
                           .ndim = model[t / 2].ndim,
                           .count = model[t / 2].count};

    memcpy(e.shape, model[t / 2].shape, sizeof model[0].shape);
    return e;
}

/* Share r of n of every tensor; data is in room. Some shares are empty. */
static inline int share(int r, int n, struct ckpt_entry *out, float *room)
{
    for (int t = 0; t < TENSORS; t++) {
        struct ckpt_entry e = entry_of(t);
        uint64_t lo = e.count * (uint64_t)r / (uint64_t)n,
                 hi = e.count * ((uint64_t)r + 1) / (uint64_t)n;

        e.first = lo;
        e.count = hi - lo;
        e.data = room;
        room += e.count;
        out[t] = e;
    }
    return TENSORS;
}

static inline struct ckpt_meta meta_of(int64_t step)
{
    return (struct ckpt_meta){.step = step,
                              .update = step - 1,
                              .samples = step * 8,
                              .applied = step * 8 - 8,
                              .loss_scale = 1,
                              .good_steps = 3,
                              .hysteresis = 2,
                              .seed = 0xfedcba9876543210u,
                              .data_hash = 1,
                              .config_hash = 0xabcdef,
                              .world = 3,
                              .threads = 2,
                              .mesh = "data=3",
                              .isa = "avx2",
                              .build = "0.1.0-x",
                              .config = (char *)"[run]\nseed = \"7\"\n",
                              .loss = 0.1,
                              .valid_loss = NAN};
}

#endif
