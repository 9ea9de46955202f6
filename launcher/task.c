/* What is to be run: see task.h. Everything that can be wrong with the input is found here. */
#include "launcher/task.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "launcher/devices.h"
#include "launcher/programs.h"
#include "launcher/spawner.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define DEFAULT_HOSTFILE "/job/hostfile"
#define MOST_SLOTS 1024

extern char **environ;

static int64_t first_given(int64_t a, int64_t b)
{
    return a >= 0 ? a : b;
}

static char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');

    return dot && dot > base ? xstrndup(base, (size_t)(dot - base)) : xstrdup(base);
}

static void add_word(struct task *t, const char *w)
{
    t->argv = xrealloc(t->argv, (size_t)(t->argc + 2) * sizeof *t->argv);
    t->argv[t->argc++] = xstrdup(w);
    t->argv[t->argc] = NULL;
}

static int is_python(const char *program)
{
    size_t n = strlen(program);

    return n > 3 && !strcmp(program + n - 3, ".py");
}

static void make_program(struct task *t, const struct options *o)
{
    int i, python = o->module || (is_python(o->argv[0]) && !o->no_python);

    t->name = base_name(o->argv[0]);
    if (python) {
        add_word(t, "python3");
        add_word(t, "-u");
        if (o->module)
            add_word(t, "-m");
    }
    add_word(t, o->argv[0]);
    t->python = python ? t->argc : 0;
    for (i = 1; i < o->argc; i++)
        add_word(t, o->argv[i]);
}

/* The job's, else DS_RANK, else "": each agent looks for ds-rank, where ours lies too. */
static void add_rank_program(struct task *t)
{
    const char *given = getenv("DS_RANK");
    struct err none = ERR_INIT;

    t->rank_program = program_find("ds-rank", NULL, &none);
    if (t->job.program || !given || !*given || *given == '/') {
        add_word(t, t->job.program ? t->job.program : given ? given : "");
    } else {
        char *path = xasprintf("%s/%s", t->cwd, given);

        add_word(t, path);
        free(path);
    }
}

/* Rows of the command line over those of --deepspeed-config, over those of the job file; what the front end decides
 * itself is a row too. */
static int make_job(struct task *t, const struct options *o, struct err *err)
{
    struct settings *tables[] = {&t->settings};
    struct buf warn = BUF_INIT;
    int i, rc;

    t->job_file = xstrdup(o->argc ? o->argv[0] : o->deepspeed_config);
    if (o->argc && !options_is_job(o->argv[0]))
        return err_set(err, ERR_INPUT, "--deepspeed-config is for a job file, and '%s' is a program: put "
                       "the option behind the program, which then gets it", t->job_file);
    if (o->argc > 1)
        return err_set(err, ERR_INPUT, "%s: a job file takes no arguments, but '%s' stands behind it; "
                       "settings are overridden by --set PATH=VALUE", t->job_file, o->argv[1]);
    if (job_read(&t->rows, t->job_file, err))
        return -1;
    if (o->argc && o->deepspeed_config && job_read(&t->rows, o->deepspeed_config, err))
        return -1;
    for (i = 0; i < o->set.n; i++)
        settings_rows_add(&t->rows, o->set.row[i].path, o->set.row[i].value, o->set.row[i].where);
    settings_init(&t->settings, job_table, job_table_n, &t->job);
    rc = settings_apply(tables, 1, &t->rows, "model.", &warn, err);
    if (warn.len) {
        while (warn.data[warn.len - 1] == '\n' && warn.len > 1)
            warn.data[--warn.len] = 0;
        log_warn("%s", warn.data);
    }
    buf_clear(&warn);
    if (rc)
        return -1;
    if (t->job.resume && !strcmp(t->job.resume, "auto") && !t->job.run_dir && !o->run_dir)
        return err_set(err, ERR_INPUT, "run.resume = auto goes on in a run folder, and none is named: name it with "
                       "--run-dir DIR or run.dir, or the checkpoint with --resume DIR");
    t->name = t->job.name ? xstrdup(t->job.name) : base_name(t->job_file);
    if (strchr(t->name, '/'))
        return err_set(err, ERR_INPUT, "run.name = %s: a name has no / in it", t->name);
    add_rank_program(t);
    return 0;
}

static int make_identity(struct task *t, struct err *err)
{
    uint8_t id[6];
    size_t i;

    if (getrandom(id, sizeof id, 0) != sizeof id || getrandom(t->key, sizeof t->key, 0) != sizeof t->key)
        return err_set(err, ERR_JOB, "no random bytes from the kernel: %m");
    for (i = 0; i < sizeof id; i++)
        snprintf(t->job_id + 2 * i, 3, "%02x", id[i]);
    return 0;
}

static void take_settings(struct task *t, const struct options *o)
{
    const struct job *j = &t->job;

    t->grace_ms = first_given(o->grace_ms, t->engine ? j->grace_ms : 30000);
    t->connect_timeout_ms = first_given(o->connect_timeout_ms, t->engine ? j->connect_timeout_ms : 30000);
    t->ping_limit_ms = first_given(o->ping_limit_ms, t->engine ? j->ping_limit_ms : 10000);
    t->launcher = o->launcher ? o->launcher : j->launcher;
    t->master_addr = o->master_addr ? o->master_addr
                     : o->torch.local_addr ? o->torch.local_addr : j->master_addr;
    if (o->torch.join_ms && o->connect_timeout_ms < 0)
        t->connect_timeout_ms = o->torch.join_ms;
    t->interface = o->interface ? o->interface : j->interface;
    t->master_port = o->master_port ? o->master_port : (int)j->master_port;
    t->bind = (struct binding_ask){(enum bind_to)j->bind_to,
                                   o->bind_core_list ? o->bind_core_list : j->bind_core_list};
    if (o->bind_to)
        bind_to_parse(o->bind_to, &t->bind.to);
    else if (o->bind_cores)
        t->bind.to = BIND_CORE;
}

/* The binding that was asked for can be had as far as this machine can tell. */
static int check_binding(const struct task *t, struct err *err)
{
    uint8_t set[TOPO_CPUS];
    int i;

    if (t->bind.list && (!*t->bind.list || cpus_parse(t->bind.list, set, TOPO_CPUS)))
        return err_set(err, ERR_INPUT, "bind-core-list '%s': give numbers of processors, such as 0,2-4,6",
                       t->bind.list);
    if (t->bind.list && t->bind.to == BIND_NONE)
        return err_set(err, ERR_INPUT, "--bind-to none binds nothing, but --bind-core-list names processors; "
                       "give one of them");
    for (i = 0; i < t->env.n && t->bind.to > BIND_NONE; i++)
        if (!strncmp(t->env.item[i], "KMP_AFFINITY=", 13))
            return err_set(err, ERR_INPUT, "KMP_AFFINITY binds threads too and would undo --bind-to; unset it, or "
                           "give --bind-to none");
    return 0;
}

int task_make(struct task *t, const struct options *o, struct err *err)
{
    const char *unset;

    *t = (struct task){0};
    t->engine = o->deepspeed_config || (o->argc && !o->module && options_is_job(o->argv[0]));
    if (!t->engine && !o->argc)
        return err_set(err, ERR_INPUT, "nothing to run: give a job file or a program; see ds-launch --help");
    t->cwd = getcwd(NULL, 0);
    if (!t->cwd)
        return err_set(err, ERR_INPUT_FILE, "the working directory cannot be told: %m; change to another");
    if (t->engine && make_job(t, o, err))
        return -1;
    if (t->engine && o->torch.max_restarts)
        return err_set(err, ERR_INPUT, "--max-restarts belongs to a program; a job goes on with --run-dir DIR --resume "
                       "auto");
    if (!t->engine && o->set.n)
        return err_set(err, ERR_INPUT, "%s belongs to a job file, but %s is a program", o->set.row[0].where,
                       o->argv[0]);
    if (!t->engine)
        make_program(t, o);
    take_settings(t, o);
    if (make_identity(t, err))
        return -1;
    if (o->venv_script)
        t->venv = *o->venv_script == '/' ? xstrdup(o->venv_script) : xasprintf("%s/%s", t->cwd, o->venv_script);
    if ((unset = envlist_unset(environ, o->export, o->nexports)))
        log_warn("--export %s: it is not set here, so the ranks do not get it", unset);
    if (envlist_build(&t->env, environ, getenv("HOME"), t->cwd, o->export, o->nexports, t->python, err))
        return -1;
    return check_binding(t, err);
}

void task_clear(struct task *t)
{
    int i;

    for (i = 0; i < t->argc; i++)
        free(t->argv[i]);
    free(t->argv);
    free(t->job_file);
    free(t->rank_program);
    free(t->name);
    free(t->cwd);
    free(t->venv);
    free(t->logs);
    envlist_clear(&t->env);
    settings_rows_clear(&t->rows);
    if (t->settings.table)
        settings_clear(&t->settings);
    *t = (struct task){0};
}

/* ---- hosts ---- */

/* --hosts w[1-4]:2,m1 is a hostfile with commas for line ends. */
static int hosts_spec(struct hosts *hosts, const char *spec, struct err *err)
{
    char *text, *p;
    int depth = 0, rc;

    if (!strncmp(spec, "local", 5) && (!spec[5] || spec[5] == ':'))
        return hosts_source(hosts, spec, err);
    if (!strncmp(spec, "sim:", 4))
        return hosts_source(hosts, spec, err);
    if (strchr(spec, '/'))
        return err_set(err, ERR_INPUT,
                       "--hosts %s: that is a path, and --hosts takes names, such as w[1-4]:2,m1; a file of "
                       "hosts is given by --hostfile",
                       spec);
    text = xstrdup(spec);
    for (p = text; *p; p++) {
        depth += (*p == '[') - (*p == ']');
        if (*p == ',' && depth <= 0)
            *p = '\n';
    }
    rc = hostfile_parse(hosts, "--hosts", text, strlen(text), err);
    free(text);
    return rc;
}

/* No list of hosts: this machine, with as many slots as were asked for, else one for each GPU that a program may
 * use. A filter that names slots may name any: devices_choose knows whether they are there. */
static int this_machine(struct hosts *hosts, const struct task *t, const struct host_filter *filter,
                        struct err *err)
{
    int gpus = devices_visible(getenv("CUDA_VISIBLE_DEVICES")), slots = 1;
    char spec[32];

    if (gpus < 0)
        gpus = devices_count();
    if (filter->num_slots > 0)
        slots = filter->num_slots;
    else if (filter->include && strchr(filter->include, ':'))
        slots = MOST_SLOTS;
    else if (gpus > 0 && !t->engine)
        slots = gpus;
    snprintf(spec, sizeof spec, "local:%d", slots);
    return hosts_source(hosts, spec, err);
}

/* "--NAME" of the option that gave a number, else the path of the job's setting. */
static const char *giver(const struct options *o, const char *names, const char *path, char out[40])
{
    const char *name = options_given(o, names);

    snprintf(out, 40, "%s%s", name ? "--" : "", name ? name : path);
    return out;
}

int task_hosts(const struct task *t, const struct options *o, struct hosts *hosts, struct err *err)
{
    const struct job *j = &t->job;
    char nodes[40], slots[40];
    struct host_filter filter = {
        o->include ? o->include : j->include,
        o->exclude ? o->exclude : j->exclude,
        o->num_nodes,
        o->ranks_per_node,
        giver(o, " num-nodes nnodes ", "launch.num_nodes", nodes),
        giver(o, " num-gpus num-accelerators nproc-per-node ", "launch.ranks_per_node", slots)};
    struct host_filter local; /* where no hostfile is named */
    int rc;

    memset(hosts, 0, sizeof *hosts);
    if (o->include)
        filter.exclude = NULL;
    if (o->exclude)
        filter.include = NULL;
    if (filter.num_nodes < 0 && j->num_nodes > 0)
        filter.num_nodes = (int)j->num_nodes;
    if (filter.num_slots < 0 && j->ranks_per_node > 0)
        filter.num_slots = (int)j->ranks_per_node;
    local = filter;
    if (o->torch.nproc < 0)
        local.num_slots = torch_slots(o);
    if (o->hosts)
        rc = hosts_spec(hosts, o->hosts, err);
    else if (o->torch.standalone)
        rc = this_machine(hosts, t, &local, err);
    else if (o->hostfile)
        rc = hostfile_read(hosts, o->hostfile, err);
    else if (j->hostfile)
        rc = hostfile_read(hosts, j->hostfile, err);
    else if (!access(DEFAULT_HOSTFILE, F_OK))
        rc = hostfile_read(hosts, DEFAULT_HOSTFILE, err);
    else
        rc = this_machine(hosts, t, &local, err);
    if (!rc && hosts_filter(hosts, &filter, err)) {
        const char *path = filter.include && filter.include == j->include   ? "launch.include"
                           : filter.exclude && filter.exclude == j->exclude ? "launch.exclude"
                                                                            : NULL;

        for (int i = 0; path && i < t->rows.n; i++)
            if (!strcmp(t->rows.row[i].path, path))
                err_prefix(err, strstr(t->rows.row[i].where, path) ? "%s" : "%s: %s",
                           t->rows.row[i].where, path);
        return -1;
    }
    return rc ? rc : torch_hosts(o, hosts, err);
}

static int is_here(const char *name)
{
    char self[256] = "";

    if (!strcmp(name, "localhost") || !strcmp(name, "127.0.0.1") || !strcmp(name, "::1"))
        return 1;
    gethostname(self, sizeof self - 1);
    return !strcasecmp(self, name);
}

const struct spawner_ops *task_spawner(const struct task *t, const struct hosts *hosts, struct err *err)
{
    const char *name = t->launcher;
    int i, here = 1;

    if (hosts->source && !strncmp(hosts->source, "sim:", 4)) {
        if (!name)
            return &spawner_sim;
        err_set(err, ERR_INPUT, "the hosts of %s are invented: --launcher %s cannot reach them; leave it out to "
                "simulate them", hosts->source, name);
        return NULL;
    }
    if (!name) {
        for (i = 0; i < hosts->n; i++)
            here &= is_here(hosts->host[i].name) && !hosts->host[i].user && !hosts->host[i].port;
        if (hosts->source && !strncmp(hosts->source, "local", 5))
            here = 1;
        name = here ? "local" : "ssh";
    }
    for (i = 0; spawners[i]; i++)
        if (!strcmp(spawners[i]->name, name))
            return spawners[i];
    err_set(err, ERR_INPUT, "launcher %s is not in this build; see ds-launch info", name);
    return NULL;
}
