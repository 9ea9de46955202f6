/* What the agents get to start ranks: addresses, processors, the job's text. */
#include "launcher/front.h"


#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

int front_addresses(struct front *f, struct err *err)
{
    int m, n = f->place.nodes, rc;
    const struct hello **hello = xcalloc((size_t)n, sizeof *hello);
    const char **name = xcalloc((size_t)n, sizeof *name);

    for (m = 0; m < n; m++) {
        hello[m] = &f->node[m].hello;
        name[m] = f->hosts->host[m].name;
    }
    f->address = xcalloc((size_t)n, sizeof *f->address);
    rc = address_choose(hello, name, n, f->task->interface, f->address, err);
    free(hello);
    free(name);
    f->port_given = f->task->master_port != 0;
    if (!rc && !f->task->master_port)
        f->task->master_port = f->node[0].hello.port;
    if (!rc && !f->task->master_port)
        return err_set(err, ERR_NODE, "host %s has no free TCP port for MASTER_PORT; give one with "
                       "--master-port", f->hosts->host[0].name);
    if (!rc)
        front_say(f, LOG_DEBUG, "MASTER_ADDR %s, MASTER_PORT %d",
                  f->task->master_addr ? f->task->master_addr : f->address[0].address,
                  f->task->master_port);
    return rc;
}

static void fill_ranks(const struct front *f, int node, struct spawn *s)
{
    const struct front_site *site = &f->site[node];
    int i;

    s->nranks = site->n;
    s->rank = xcalloc((size_t)s->nranks, sizeof *s->rank);
    for (i = 0; i < s->nranks; i++)
        s->rank[i] = (struct spawn_rank){f->place.first[node] + i, i, site->rank[i].cores, site->rank[i].cpus};
    s->devices = site->devices;
}

static int64_t core_limit(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_CORE, &l))
        return SPAWN_CORE_KEEP;
    return l.rlim_cur >= INT64_MAX ? -1 : (int64_t)l.rlim_cur;
}

static void send_one(struct front *f, int node, enum msg_type type, const struct buf *job, const struct buf *node_runs)
{
    struct task *t = f->task;
    struct spawn s = {0};
    struct buf payload = BUF_INIT;
    mode_t mask = umask(0);

    umask(mask);
    s.job_id = t->job_id;
    s.host = f->hosts->host[node].name;
    s.world = f->place.world;
    s.nodes = f->place.nodes;
    s.node = node;
    s.node_runs = *node_runs;
    s.address = f->address[node].address;
    s.interface = f->address[node].interface;
    s.rdma = f->address[node].rdma;
    s.master_addr = t->master_addr ? (char *)(uintptr_t)t->master_addr : f->address[0].address;
    s.master_port = t->master_port;
    memcpy(s.key, t->key, sizeof s.key);
    s.grace_ms = t->grace_ms;
    s.ping_limit_ms = t->ping_limit_ms;
    s.engine = t->engine;
    s.pass_local_rank = f->o->no_local_rank || f->o->torch.used ? 0 : t->python;
    s.stdin_rank = front_stdin_rank(f);
    s.argv = t->argv;
    s.argc = t->argc;
    s.rank_program = t->rank_program;
    s.cwd = t->cwd;
    s.umask = (int)mask;
    s.env = t->env.item;
    s.nenv = t->env.n;
    s.restarts = f->restarts;
    s.max_restarts = f->o->torch.max_restarts;
    s.run_id = f->o->torch.run_id;
    s.role = f->o->torch.role;
    s.core_bytes = core_limit();
    s.venv = t->venv;
    s.nlate = t->env.late;
    s.job = (uint8_t *)(uintptr_t)buf_str(job);
    s.job_len = job->len;
    fill_ranks(f, node, &s);
    spawn_put(&payload, &s);
    front_send(f, node, type, payload.data, payload.len);
    free(s.rank);
    buf_clear(&payload);
}

void front_send_spawn(struct front *f, enum msg_type type)
{
    int *node_of = xcalloc((size_t)f->place.world, sizeof *node_of), r, m;
    struct buf job = BUF_INIT, node_runs = BUF_INIT;

    for (r = 0; r < f->place.world; r++)
        node_of[r] = f->place.rank[r].node;
    put_node_of(&node_runs, node_of, f->place.world);
    free(node_of);
    if (f->task->engine) {
        settings_rows_add(&f->task->rows, "run.dir", f->run_dir, "the run folder");
        settings_rows_ship(&f->task->rows, &job);
    }
    for (m = 0; m < f->place.nodes; m++)
        send_one(f, m, type, &job, &node_runs);
    buf_clear(&node_runs);
    buf_clear(&job);
}
