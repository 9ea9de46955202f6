/* What the agents get to start ranks: addresses, processors, the job's text; and the run folder, which is made
 * when every check has passed. */
#include "launcher/front.h"

#include "engine/base/clock.h"
#include "launcher/rundir.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

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

static void add_json_string(struct buf *b, const char *key, const char *value)
{
    buf_addf(b, ",\"%s\":\"", key);
    buf_add_json(b, value, strlen(value));
    buf_addc(b, '"');
}

/* job.json: who runs this, where. */
static int write_job_json(struct front *f, struct err *err)
{
    struct buf b = BUF_INIT;
    char self[256] = "";
    int m, rc;

    gethostname(self, sizeof self - 1);
    /* the outer process: the one that takes signals (keeper.h) */
    buf_addf(&b, "{\"pid\":%d,\"began\":%.3f,\"world\":%d", (int)getppid(), f->began_wall, f->place.world);
    add_json_string(&b, "job_id", f->task->job_id);
    add_json_string(&b, "host", self);
    add_json_string(&b, "cwd", f->task->cwd);
    add_json_string(&b, "job_file", f->task->job_file);
    add_json_string(&b, "launcher", f->ops->name);
    if (f->control)
        add_json_string(&b, "control", control_path(f->control));
    buf_adds(&b, ",\"nodes\":[");
    for (m = 0; m < f->place.nodes; m++) {
        buf_addf(&b, "%s{\"first_rank\":%d,\"ranks\":%d", m ? "," : "", f->place.first[m],
                 f->place.first[m + 1] - f->place.first[m]);
        add_json_string(&b, "host", f->hosts->host[m].name);
        add_json_string(&b, "address", f->address[m].address);
        buf_addc(&b, '}');
    }
    buf_adds(&b, "]}\n");
    rc = rundir_write(f->run_dir, "job.json", b.data, b.len, err);
    buf_clear(&b);
    return rc;
}

/* The job file as it was written, and the settings as they are used. */
static int copy_job(struct front *f, struct err *err)
{
    const char *slash = strrchr(f->task->job_file, '/');
    FILE *in = fopen(f->task->job_file, "re");
    struct buf b = BUF_INIT;
    char part[4096];
    size_t n;
    int rc;

    if (!in)
        return err_set(err, ERR_INPUT_FILE, "cannot read %s again: %m", f->task->job_file);
    while ((n = fread(part, 1, sizeof part, in)) > 0)
        buf_add(&b, part, n);
    fclose(in);
    rc = rundir_write(f->run_dir, slash ? slash + 1 : f->task->job_file, buf_str(&b), b.len, err);
    buf_reset(&b);
    settings_rows_print(&f->task->rows, &b);
    if (!rc)
        rc = rundir_write(f->run_dir, "settings.ini", buf_str(&b), b.len, err);
    buf_clear(&b);
    return rc;
}

/* --enable-each-rank-log: the folder, made when it is not there. */
static int make_log_dir(const char *path, struct err *err)
{
    struct stat st;

    if (mkdir(path, 0700) && errno != EEXIST)
        return err_set(err, ERR_JOB_IO, "cannot make the log folder %s: %m", path);
    if (stat(path, &st) || !S_ISDIR(st.st_mode))
        return err_set(err, ERR_INPUT, "--enable-each-rank-log %s: it is a file, name a folder", path);
    return 0;
}

int front_make_run_dir(struct front *f, struct err *err)
{
    if ((f->o->log_dir && make_log_dir(f->o->log_dir, err)) || front_logs_open(f, err))
        return -1;
    if (f->run_dir) {
        if (rundir_make(f->run_dir, f->task->job.resume != NULL, err) || write_job_json(f, err) ||
            copy_job(f, err))
            return -1;
        f->run_dir_made = 1;
    }
    front_output_logs(f);
    return 0;
}
