/* The subcommands of ds-launch that start nothing: see subcommands.h. */
#include "config.h"

#include "launcher/subcommands.h"

#include "engine/base/build.h"
#include "engine/base/log.h"
#include "launcher/binding.h"
#include "launcher/devices.h"
#include "launcher/place.h"
#include "launcher/planmap.h"
#include "launcher/programs.h"
#include "launcher/spawner.h"
#include "launcher/task.h"
#include "launcher/topo_hwloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(const struct err *err)
{
    log_error("%s", err->text);
    return err_exit_code(err);
}

static int print(struct buf *b, int status)
{
    if (b->len && fwrite(b->data, 1, b->len, stdout) != b->len)
        status = 1;
    if (fflush(stdout)) {
        log_error("cannot write the output: %m");
        status = 1;
    }
    buf_clear(b);
    return status;
}

int cmd_hosts(const struct options *o)
{
    struct task none = {.job = {.num_nodes = 0}};
    struct hosts hosts = {0};
    struct err err = ERR_INIT;
    struct buf b = BUF_INIT;
    int status = 0;

    if (o->argc > 1)
        err_set(&err, ERR_INPUT, "ds-launch hosts: '%s' is one word too many", o->argv[1]);
    else
        task_hosts(&none, o, &hosts, &err);
    if (err.code)
        status = fail(&err);
    else if (o->json)
        hosts_print_json(&hosts, &b);
    else if (o->list)
        hosts_print_list(&hosts, &b);
    else
        hosts_print_table(&hosts, &b);
    if (b.len && b.data[b.len - 1] != '\n')
        buf_addc(&b, '\n');
    hosts_clear(&hosts);
    return print(&b, status);
}

/* ---- plan ---- */

/* What is known before any host is asked: of this machine, or of hosts that look as --topology says. */
struct known {
    struct topo topo;
    int is; /* topo is filled in */
    int gpus; /* devices of each host; -1: not known */
    const char *mask;
    struct binding_rank *bind; /* [world] */
    struct map_rank *map;      /* [world] */
};

static int know_topology(struct known *k, const struct options *o, int local, struct err *err)
{
    uint8_t allowed[TOPO_CPUS];

    k->gpus = -1;
    if (o->topology) {
        k->is = 1;
        if (topo_hwloc(&k->topo, o->topology, err))
            return -1;
        k->gpus = k->topo.ngpus;
    } else if (local) {
        k->is = 1;
        topo_allowed(allowed);
        topo_read(&k->topo, "/sys", allowed); /* as its agents will */
        k->gpus = devices_count();
        k->mask = getenv("CUDA_VISIBLE_DEVICES");
    }
    return 0;
}

/* One host, or all of them where they are one machine. */
static int know_host(struct known *k, const struct task *t, const struct hosts *h, const struct place *p,
                     int m, int local, struct err *err)
{
    int first = p->first[m], n = p->first[m + 1] - first, *near = xcalloc((size_t)n, sizeof *near), rc = 0, i;
    const struct host *host = &h->host[m];
    struct buf list = BUF_INIT;

    for (i = 0; i < n; i++)
        near[i] = host->device[i] < k->topo.ngpus ? k->topo.gpu_numa[host->device[i]] : -1;
    if (!t->engine)
        rc = devices_choose(k->mask, k->gpus, host->device, n, host->line && host->device[0] != host->slot[0],
                            &list, err);
    if (!rc)
        rc = binding_make(&k->topo, &t->bind, local ? first : 0, local ? p->world : n, n,
                          list.len && !k->mask ? near : NULL, k->bind + first, err);
    map_devices(k->map + first, n, buf_str(&list));
    for (i = first; i < first + n && !rc; i++) {
        k->map[i].cores = k->bind[i].cpus;
        k->map[i].numa = k->bind[i].numa;
    }
    buf_clear(&list);
    free(near);
    return rc ? err_prefix(err, "%s", host->name) : 0;
}

static int know(struct known *k, const struct options *o, const struct task *t, const struct hosts *h,
                const struct place *p, int local, struct err *err)
{
    int m, rc = know_topology(k, o, local, err);

    k->bind = xcalloc((size_t)p->world, sizeof *k->bind);
    k->map = xcalloc((size_t)p->world, sizeof *k->map);
    for (m = 0; m < p->nodes && k->is && !rc; m++)
        rc = know_host(k, t, h, p, m, local && !o->topology, err);
    return rc;
}

static void known_clear(struct known *k, int world)
{
    map_clear(k->map, world);
    binding_clear(k->bind, world);
    free(k->bind);
    topo_clear(&k->topo);
}

static void plan_words(const struct task *t, const struct hosts *h, const struct place *p,
                       const char *launcher, int local, struct buf *b)
{
    int i;

    buf_addf(b, "\n%d rank%s on %d node%s, launcher %s\n", p->world, p->world == 1 ? "" : "s", p->nodes,
             p->nodes == 1 ? "" : "s", launcher);
    buf_adds(b, "MASTER_ADDR   ");
    if (t->master_addr)
        buf_addf(b, "%s\n", t->master_addr);
    else if (local)
        buf_adds(b, "127.0.0.1\n");
    else
        buf_addf(b, "%s's address in %s (asked by ds-launch --dry-run)\n", h->host[0].name,
                 t->interface ? t->interface : "the network common to all hosts");
    if (t->master_port)
        buf_addf(b, "MASTER_PORT   %d\n", t->master_port);
    else
        buf_addf(b, "MASTER_PORT   one that is free on %s\n", h->host[0].name);
    buf_adds(b, "runs          ");
    if (t->engine)
        buf_addf(b, "%s%s%s", t->job_file, t->job.program ? " in " : "",
                 t->job.program ? t->job.program : "");
    for (i = 0; i < t->argc && !t->engine; i++)
        buf_addf(b, "%s%s", i ? " " : "", t->argv[i]);
    buf_addf(b, "\nin            %s\n", t->cwd);
}

/* The words behind `plan` become the whole command. */
static void drop_first_word(struct options *o)
{
    free(o->argv[0]);
    memmove(o->argv, o->argv + 1, (size_t)o->argc * sizeof *o->argv);
    o->argc--;
}

static int plan(const struct options *o, const struct task *t, const struct hosts *hosts,
                const struct place *place, struct buf *b, struct err *err)
{
    int sim = hosts->source && !strncmp(hosts->source, "sim:", 4), rc;
    const struct spawner_ops *ops = sim ? NULL : task_spawner(t, hosts, err);
    int local = ops && !strcmp(ops->name, "local");
    struct known k = {.is = 0};

    rc = err->code ? -1 : know(&k, o, t, hosts, place, local, err);
    if (!rc && o->json) {
        buf_addf(b, "{\"world\":%d,\"nodes\":%d,\"ranks\":[", place->world, place->nodes);
        map_print_json(hosts, place, k.map, b);
        buf_adds(b, "]}\n");
    } else if (!rc) {
        map_print(hosts, place, k.map, b);
        plan_words(t, hosts, place, sim ? "none: the hosts are invented" : ops->name, local, b);
    }
    known_clear(&k, place->world);
    return rc;
}

int cmd_plan(struct options *o)
{
    struct task t = {0};
    struct hosts hosts = {0};
    struct place place = {0};
    struct err err = ERR_INIT;
    struct buf b = BUF_INIT;
    int status = 0;

    drop_first_word(o);
    if (!task_make(&t, o, &err) && !task_hosts(&t, o, &hosts, &err) && !place_make(&place, &hosts, &err))
        plan(o, &t, &hosts, &place, &b, &err);
    if (err.code)
        status = fail(&err);
    place_clear(&place);
    hosts_clear(&hosts);
    task_clear(&t);
    return print(&b, status);
}

/* ---- info ---- */

int cmd_info(const struct options *o)
{
    static const char *const programs[][2] = {{"ds-agent", "DS_AGENT"}, {"ds-rank", "DS_RANK"}};
    struct buf b = BUF_INIT;
    char why[256];
    size_t i;

    buf_addf(&b, "ds-launch %s\nbuild         %s\n", PACKAGE_VERSION, build_id());
    for (i = 0; i < 2; i++) {
        struct err err = ERR_INIT;
        char *path = program_find(programs[i][0], programs[i][1], &err);

        buf_addf(&b, "%-13s %s\n", programs[i][0], path ? path : err.text);
        free(path);
    }
    buf_adds(&b, "\nlaunchers\n");
    for (i = 0; spawners[i]; i++) {
        int rc = spawners[i]->probe(o, why);

        buf_addf(&b, "  %-11s %s: %s\n", spawners[i]->name, rc ? "no" : "yes", why);
    }
    buf_addf(&b, "\nhwloc         %s\n", HAVE_HWLOC ? "yes: plan --topology" : "no");
    return print(&b, 0);
}

int cmd_rank(char **argv)
{
    struct err err = ERR_INIT;
    char *path = program_find("ds-rank", "DS_RANK", &err);

    if (path) {
        argv[0] = xstrdup("ds-launch"); /* its messages begin with it */
        execv(path, argv);
        err_set(&err, ERR_INPUT_FILE, "cannot start %s: %m", path);
    }
    return fail(&err);
}
