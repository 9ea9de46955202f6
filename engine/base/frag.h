/* Fragments: index ranges of global tensors. The pure arithmetic that checkpoints, snapshots and
 * resharding share: no I/O, no clock. */
#ifndef DS_BASE_FRAG_H
#define DS_BASE_FRAG_H

#include "engine/base/err.h"

#include <stdint.h>

/* Elements [first, first + count) of the global tensor NAME|KIND of total elements. */
struct frag {
    const char *name; /* global tensor, e.g. "block.0.attn.q"; borrowed */
    const char *kind; /* w, m, v, mom, sum, ef */
    uint64_t total, first, count;
    uint64_t hash; /* XXH3 of its bytes; 0: incomplete */
    int holder;    /* index of the file or node that holds it */
};

/* Sorts by (name, kind, first). */
void frag_sort(struct frag *f, int n);

/* Do the n sorted fragments cover every element of every tensor in want (sorted; first 0, count
 * total)? Overlaps are fine (copies). 0, or -1 and err names the first gap. */
int frag_cover(const struct frag *have, int n, const struct frag *want, int nwant, struct err *err);

/* One copy: count elements of want[to] beginning at to_off come from have[from] at from_off. */
struct frag_move {
    int from, to;
    uint64_t from_off, to_off, count;
};

/* The moves that fill every want from have (both sorted), in (to, to_off) order; the lowest holder wins
 * among copies. *moves is owned by the caller (free). 0, or -1 and err names the first gap. */
int frag_plan_moves(const struct frag *have, int n, const struct frag *want, int nwant,
                    struct frag_move **moves, int *nmoves, struct err *err);

#endif
