/* --max-restarts: after a failure of a program's rank all ranks end (TERM, grace, KILL) and start again.
 *
 * Invariants: a new epoch begins when every rank of the old one is reaped and the last of its output has come, so
 * no frame of the old one can follow; MASTER_PORT is another one unless the user gave it; counts and records of an
 * epoch are those of the ranks that run now. Hosts stay what they are: a lost one ends the job. */
#include "launcher/front.h"

#include <stdlib.h>
#include <string.h>

int front_may_restart(const struct front *f)
{
    const struct failure *c;

    if (f->task->engine || !f->nfailures || f->restarts >= f->o->torch.max_restarts || f->losses || f->stop_signal ||
        f->trouble.code)
        return 0;
    c = &f->failures[judge(f->failures, f->nfailures, 0)];
    return c->rank >= 0 && !(f->rank[c->rank].said && err_class(f->rank[c->rank].said) == ERR_CLASS_INPUT);
}

void front_all_exited(struct front *f)
{
    if (f->machine.state == JOB_RESTARTING)
        front_try_clear(f);
    else
        machine_post(&f->machine, f->machine.state == JOB_JUDGING && front_may_restart(f) ? EV_RESTART : EV_ALL_EXITED);
}

void front_try_clear(struct front *f)
{
    if (f->machine.state == JOB_RESTARTING && f->exits == f->place.world && f->stream_ends == 2 * f->place.world &&
        !f->port_asked)
        machine_post(&f->machine, EV_CLEARED);
}

void front_restart(struct front *f)
{
    struct buf why = BUF_INIT, grace = BUF_INIT;
    int m;

    front_blame(f, &why);
    front_say(f, LOG_WARN, "%s; all ranks start again (%d of %d)", buf_str(&why), f->restarts + 1,
              f->o->torch.max_restarts);
    buf_clear(&why);
    f->nfailures = 0; /* answered: what fails from here on is another matter */
    for (m = 0; m < f->place.nodes; m++)
        f->node[m].failed = 0;
    front_stdin_close(f); /* what the ranks have read is gone */
    put_u64(&grace, RESTART_GRACE_MS);
    front_send_all(f, MSG_KILL, grace.data, grace.len);
    buf_clear(&grace);
    if (!f->port_given) {
        f->port_asked = 1;
        front_send(f, 0, MSG_HOLD, NULL, 0);
    }
    front_try_clear(f);
}

int front_held(struct front *f, int node, int port, struct err *err)
{
    if (node != 0 || !f->port_asked)
        return err_set(err, ERR_NODE, "its agent speaks of a port that nobody asked for");
    if (!port)
        return err_set(err, ERR_NODE, "it has no free TCP port for MASTER_PORT; give one with --master-port");
    f->port_asked = 0;
    f->task->master_port = port;
    front_try_clear(f);
    return 0;
}

void front_new_epoch(struct front *f)
{
    int r;

    for (r = 0; r < f->place.world; r++) {
        free(f->rank[r].said);
        free(f->rank[r].error);
        f->rank[r] = (struct front_rank){0};
    }
    f->starts = f->exits = f->stream_ends = 0;
    f->restarts++;
    f->epoch++;
}
