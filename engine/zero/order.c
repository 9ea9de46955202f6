/* Segments, and the uses that follow from them: see order.h. */
#include "engine/zero/order.h"

#include "engine/base/buf.h"

#include <stdlib.h>

int order_begins(const struct order *o, int l)
{
    return l == 0 || o->segment[l] != o->segment[l - 1];
}

int order_ends(const struct order *o, int l)
{
    return l + 1 == o->nlayers || o->segment[l] != o->segment[l + 1];
}

/* ---- segments ---- */

static int64_t interval_of(const struct job *job, const unsigned char *layer, int n)
{
    int64_t repeated = 0;

    for (int l = 0; l < n; l++)
        repeated += (layer[l] & ORDER_REPEATED) != 0;
    if (!job->recompute.number)
        return job->recompute.interval;
    return (repeated + job->recompute.number - 1) / job->recompute.number;
}

/* Cuts runs of layers of a kind into segments of so many. */
static void cut(struct order *o, const unsigned char *layer, unsigned kind, int64_t length)
{
    int64_t run = 0;

    for (int l = 0; l < o->nlayers; l++) {
        int in = length && layer[l] & kind;

        o->nsegments += in && run % length == 0;
        run = in ? run + 1 : 0;
        o->segment[l] = in ? o->nsegments - 1 : -1;
    }
}

/* ---- uses ---- */

static void add(struct order *o, int layer, unsigned what)
{
    o->use[o->n++] = (struct layer_use){layer, what};
}

static void add_backward(struct order *o, int l)
{
    int first = l, again = o->segment[l] >= 0 && o->segment[l] < o->nsegments - 1 && order_ends(o, l);

    while (again && !order_begins(o, first))
        first--;
    for (; first < l; first++)
        add(o, first, USE_AGAIN);
    add(o, l, USE_BACKWARD | (again ? USE_AGAIN : 0));
}

static int check(const struct job *job, struct err *err)
{
    const char *given = job->recompute.interval ? "interval" : "number_checkpoints";
    int64_t value = job->recompute.interval ? job->recompute.interval : job->recompute.number;

    if (job->recompute.selective && value)
        return err_set(err, ERR_INPUT,
                       "activation_checkpointing.selective and activation_checkpointing.%s = %lld: activations are "
                       "dropped in one way or in the other; take one of the two out",
                       given, (long long)value);
    if (job->recompute.interval && job->recompute.number)
        return err_set(err, ERR_INPUT,
                       "activation_checkpointing.interval = %lld and activation_checkpointing.number_checkpoints = "
                       "%lld both say how long a segment is; take one of the two out",
                       (long long)job->recompute.interval, (long long)job->recompute.number);
    return 0;
}

int order_create(struct order **out, const struct job *job, const unsigned char *layer, int nlayers,
                 struct err *err)
{
    struct order *o;

    if (check(job, err) < 0)
        return -1;
    o = xcalloc(1, sizeof *o);
    o->nlayers = nlayers;
    o->selective = job->recompute.selective;
    o->interval = interval_of(job, layer, nlayers);
    o->segment = xcalloc((size_t)nlayers + 1, sizeof *o->segment);
    o->use = xcalloc(3 * (size_t)nlayers + 1, sizeof *o->use);
    if (o->selective)
        cut(o, layer, ORDER_RESTORES, 1);
    else
        cut(o, layer, ORDER_REPEATED, o->interval);
    for (int l = 0; l < nlayers; l++)
        add(o, l, USE_FORWARD);
    for (int l = nlayers - 1; l >= 0; l--)
        add_backward(o, l);
    *out = o;
    return 0;
}

void order_destroy(struct order *o)
{
    if (!o)
        return;
    free(o->segment);
    free(o->use);
    free(o);
}
