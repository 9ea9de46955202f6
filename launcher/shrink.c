/* --nnodes MIN:MAX: a launch goes on without hosts that did not answer at its start or were lost while it ran, as long
 * as MIN are left. What ran is ended and torn down as at any end; then the whole launch begins again with the
 * hosts that are left, which for ranks that had been running is one of the --max-restarts. */
#include "launcher/front.h"

#include "hostfile/nodelist.h"

#include <stdlib.h>

static int is_left(const struct front_node *nd)
{
    return nd->up && nd->down != 2 && !nd->why.code;
}

static int count_left(const struct front *f)
{
    int m, left = 0;

    for (m = 0; m < f->place.nodes; m++)
        left += is_left(&f->node[m]);
    return left;
}

int front_may_shrink(const struct front *f)
{
    const struct torch_options *t = &f->o->torch;
    int left = count_left(f);

    if (!t->nodes_min || f->task->engine || f->stop_signal || f->check_failures || f->bug || left < t->nodes_min ||
        left == f->place.nodes)
        return 0;
    if (!f->kv)
        return !f->trouble.code || f->late;
    return f->restarts < t->max_restarts && f->nfailures && !f->trouble.code &&
           f->failures[judge(f->failures, f->nfailures, 0)].kind == FAILED_HOST;
}

uint8_t *front_shrink(struct front *f)
{
    uint8_t *lost = xcalloc((size_t)f->place.nodes, 1);
    char **names = xcalloc((size_t)f->place.nodes, sizeof *names);
    const char *why = "";
    struct buf list = BUF_INIT;
    int m, n = 0;

    for (m = 0; m < f->place.nodes; m++)
        if (!is_left(&f->node[m])) {
            lost[m] = 1;
            names[n++] = f->hosts->host[m].name;
            if (!*why && f->node[m].why.code)
                why = f->node[m].why.text;
        }
    nodelist_print(names, n, &list);
    log_warn("%s %s: %s; all ranks start %son the %d host%s left (--nnodes %d:%d)", buf_str(&list),
             f->kv ? "was lost" : "cannot take part", *why ? why : "no answer", f->kv ? "again " : "",
             f->place.nodes - n, f->place.nodes - n == 1 ? "" : "s", f->o->torch.nodes_min, f->o->torch.nodes_max);
    buf_clear(&list);
    free(names);
    if (!f->port_given)
        f->task->master_port = 0;
    f->task->restarts = f->restarts + (f->kv != NULL);
    f->task->epoch = f->epoch;
    if (f->logs && !f->task->logs)
        f->task->logs = xstrdup(f->logs);
    return lost;
}
