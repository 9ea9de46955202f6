/* Parameters: declarations become flat buffers, slices and segments. Pure.
 *
 * Each layer (and each tied owner apart) has one flat buffer: its parameters in declared order, decay
 * group before no-decay, each beginning at a multiple of 64 bytes of fp32 (16 elements). N data ranks cut a
 * flat of P elements into slices of ceil(P / (16 N)) * 16; what lies beyond P or between tensors is
 * padding: zero, never stored, never in the norm.
 */
#ifndef DS_PARAM_H
#define DS_PARAM_H

#include "engine/layer.h"

/* One global tensor: a part of a parameter. */
struct param_tensor {
    char *name;          /* "block.0.attn.qkv.q"; owned */
    int layer, param, part;
    uint64_t rows, cols; /* global shape; (rows) alone when cols == 1 */
    uint64_t offset;     /* in the flat buffer, elements */
    uint64_t numel;
    int group;           /* index into param_table.group */
    int alias;           /* index of the tied owner's tensor, or -1 */
    unsigned flags;      /* enum ds_param_flags; FROZEN also by [model] freeze */
    struct ds_init init;
};

struct param_flat {
    int layer;
    int first, ntensors; /* param_table.tensor[first .. first + ntensors) */
    uint64_t numel;      /* P with inner padding */
    uint64_t slice;      /* elements per data rank */
    uint64_t base;       /* offset of this flat in the rank's buffer of all flats, each N * slice long */
};

struct param_group {
    char *name; /* "decay", "no_decay", or a layer's own */
    double weight_decay, lr_mul;
};

/* A run of one tensor inside slice r of a flat: what hyper-parameters, norms and checkpoints walk. */
struct param_seg {
    int tensor;
    uint64_t lo, hi;  /* elements of the global tensor, flattened */
    uint64_t at;      /* offset within the slice */
};

struct param_table {
    struct param_tensor *tensor;
    int ntensors;
    struct param_flat *flat;
    int nflats;
    struct param_group *group;
    int ngroups;
    int ranks;                 /* N */
    uint64_t **at;             /* [layer][param]: place in the buffer of all flats, ties resolved */
    int **flat_of;             /* [layer][param]: the flat that it lies in, ties resolved */
    int *nparams;              /* [layer] */
    int nlayers;
    uint64_t numel;            /* parameters, ties once, no padding */
    uint64_t total;            /* sum of N * slice over flats */
};

/* What a job says of parameters by their names: lists of patterns with commas between, or NULL. A pattern that
 * fits no parameter is an error. */
struct param_rules {
    double weight_decay;  /* of matrices that no_decay does not name */
    const char *freeze;   /* not trained */
    const char *no_decay; /* no weight decay, as biases and norms */
    const char *lr_mul;   /* PATTERN:FACTOR of the learning rate; the first that fits counts */
};

/* layers: each layer's declared parameters. Owned result. */
struct param_layer {
    const char *name;
    const struct ds_param *param;
    int nparams;
};
int param_table_create(struct param_table **, const struct param_layer *layers, int nlayers, int ranks,
                       const struct param_rules *, struct err *err);
void param_table_destroy(struct param_table *);

/* Segments of slice r of flat f, in order; *seg owned by the caller. Returns their number. */
int param_segments(const struct param_table *, int flat, int rank, struct param_seg **seg);

/* First values of elements [lo, hi) of a tensor: function of (seed, name, element) alone. */
void param_init_range(const struct param_tensor *, uint64_t seed, uint64_t lo, uint64_t hi, float *out);

/* Index of the tensor with this name, or -1. */
int param_find(const struct param_table *, const char *name);

#endif
