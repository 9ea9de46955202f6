/* Ranks onto hosts and slots: see place.h. Invariant: rank r of node m has
 * first[m] <= r < first[m + 1] and local_rank r - first[m]. */
#include "launcher/place.h"

#include "engine/base/buf.h"

#include <stdlib.h>

int place_make(struct place *p, const struct hosts *hosts, struct err *err)
{
    int m, s, r = 0;
    int64_t total = 0;

    *p = (struct place){0};
    for (m = 0; m < hosts->n; m++) {
        const struct host *h = &hosts->host[m];

        if (h->max_slots && h->nslots > h->max_slots)
            return err_set(err, ERR_INPUT, "host %s has %d slots but max_slots=%d", h->name, h->nslots,
                           h->max_slots);
        total += h->nslots;
    }
    if (total < 1 || total > PLACE_MAX)
        return err_set(err, ERR_INPUT, "the hosts of %s have %lld slots together; 1 to %d can be used",
                       hosts->source ? hosts->source : "the host list", (long long)total, PLACE_MAX);
    p->world = (int)total;
    p->nodes = hosts->n;
    p->rank = xcalloc((size_t)p->world, sizeof *p->rank);
    p->first = xcalloc((size_t)p->nodes + 1, sizeof *p->first);
    for (m = 0; m < hosts->n; m++) {
        const struct host *h = &hosts->host[m];

        p->first[m] = r;
        for (s = 0; s < h->nslots; s++)
            p->rank[r++] = (struct place_rank){m, s, h->slot[s], h->device[s]};
    }
    p->first[m] = r;
    return 0;
}

void place_clear(struct place *p)
{
    free(p->rank);
    free(p->first);
    *p = (struct place){0};
}
