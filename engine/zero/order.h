/* In which order a rank uses its layers, and which of their activations it makes again instead of keeping them.
 *
 * Layers that occur more than once (blocks) are cut into segments of activation_checkpointing.interval layers; those
 * that stand alone (embedding, norm, head) are kept. Of a segment its input is kept; what its layers save, and what
 * they hand on inside it, shares one area with all other segments. Before the backward of a segment its layers run
 * forward again, the last of them within its backward use, so that with interval 1 no layer is used more often than
 * without. The last segment's activations are still there. With activation_checkpointing.selective every layer that
 * can restore is a segment of its own, of which only those tensors are shared that restore() makes.
 */
#ifndef DS_ORDER_H
#define DS_ORDER_H

#include "engine/base/job.h"

enum use_what { USE_FORWARD = 1, USE_AGAIN = 2, USE_BACKWARD = 4 };

struct layer_use {
    int layer;
    unsigned what; /* AGAIN comes before BACKWARD */
};

struct order {
    int nlayers;           /* the first nlayers uses are their forward */
    struct layer_use *use; /* of one micro-batch */
    int n;
    int *segment;          /* [nlayers]; -1: in none */
    int nsegments;
    int64_t interval;      /* layers of a segment; 0: nothing is made again, or */
    int selective;
};

enum { ORDER_REPEATED = 1, ORDER_RESTORES = 2 }; /* what a layer is */

/* layer: [nlayers] ORDER_*. Settings that contradict each other are the user's error. */
int order_create(struct order **, const struct job *, const unsigned char *layer, int nlayers, struct err *);
void order_destroy(struct order *); /* NULL is fine */

/* Is a layer the first, or the last, of its segment? */
int order_begins(const struct order *, int layer);
int order_ends(const struct order *, int layer);

#endif
