/* The subcommands of ds-launch that start nothing: see subcommands.h. */
#include "config.h"

#include "launcher/subcommands.h"

#include "engine/base/build.h"
#include "engine/base/log.h"
#include "launcher/place.h"
#include "launcher/programs.h"
#include "launcher/spawner.h"
#include "launcher/task.h"

#include <errno.h>
#include <sched.h>
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

/* The processors we may use ourselves, as a list: what local agents will have. */
static void own_cpus(struct buf *out)
{
    cpu_set_t set;
    uint8_t map[CPU_SETSIZE] = {0};
    int c;

    if (sched_getaffinity(0, sizeof set, &set))
        return;
    for (c = 0; c < CPU_SETSIZE; c++)
        map[c] = CPU_ISSET(c, &set) != 0;
    cpus_print(map, CPU_SETSIZE, out);
}

static void plan_table(const struct task *t, const struct hosts *h, const struct place *p, int local,
                       struct buf *b)
{
    struct buf cpus = BUF_INIT, share = BUF_INIT;
    int r;

    if (local)
        own_cpus(&cpus);
    buf_addf(b, "%-6s %-20s %-6s %-6s %-7s %s\n", "rank", "host", "local", "slot", "device", "cores");
    for (r = 0; r < p->world; r++) {
        const struct place_rank *k = &p->rank[r];

        buf_reset(&share);
        if (local && place_cpus(buf_str(&cpus), r, p->world, &share))
            buf_reset(&share);
        buf_addf(b, "%-6d %-20s %-6d %-6d %-7d %s\n", r, h->host[k->node].name, k->local_rank, k->slot,
                 k->device, !local ? "an equal share of the host's"
                 : share.len ? buf_str(&share) : "unbound, more ranks than cores");
    }
    (void)t;
    buf_clear(&cpus);
    buf_clear(&share);
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
        buf_addf(b, "%s's address in %s\n", h->host[0].name,
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

static void plan_json(const struct hosts *h, const struct place *p, struct buf *b)
{
    int r;

    buf_addf(b, "{\"world\":%d,\"nodes\":%d,\"ranks\":[", p->world, p->nodes);
    for (r = 0; r < p->world; r++) {
        const struct place_rank *k = &p->rank[r];
        const char *host = h->host[k->node].name;

        buf_addf(b, "%s{\"rank\":%d,\"host\":\"", r ? "," : "", r);
        buf_add_json(b, host, strlen(host));
        buf_addf(b, "\",\"node\":%d,\"local_rank\":%d,\"slot\":%d,\"device\":%d}", k->node, k->local_rank,
                 k->slot, k->device);
    }
    buf_adds(b, "]}\n");
}

/* The words behind `plan` become the whole command. */
static void drop_first_word(struct options *o)
{
    free(o->argv[0]);
    memmove(o->argv, o->argv + 1, (size_t)o->argc * sizeof *o->argv);
    o->argc--;
}

int cmd_plan(struct options *o)
{
    struct task t = {0};
    struct hosts hosts = {0};
    struct place place = {0};
    struct err err = ERR_INIT;
    struct buf b = BUF_INIT;
    const struct spawner_ops *ops = NULL;
    int status = 0, sim;

    drop_first_word(o);
    if (!task_make(&t, o, &err) && !task_hosts(&t, o, &hosts, &err) &&
        !place_make(&place, &hosts, &err)) {
        sim = hosts.source && !strncmp(hosts.source, "sim:", 4);
        if (!sim)
            ops = task_spawner(&t, &hosts, &err);
        if (!err.code && o->json) {
            plan_json(&hosts, &place, &b);
        } else if (!err.code) {
            int local = ops && !strcmp(ops->name, "local");

            plan_table(&t, &hosts, &place, local, &b);
            plan_words(&t, &hosts, &place, sim ? "none: the hosts are invented" : ops->name, local, &b);
        }
    }
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
    return print(&b, 0);
}

int cmd_rank(char **argv)
{
    struct err err = ERR_INIT;
    char *path = program_find("ds-rank", "DS_RANK", &err);

    if (path) {
        argv[0] = path;
        execv(path, argv);
        err_set(&err, ERR_INPUT_FILE, "cannot start %s: %m", path);
    }
    return fail(&err);
}
