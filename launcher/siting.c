/* Where the ranks of each node sit, from what its agent said of it: processors, devices. Everything that cannot
 * be had is found here, of all hosts at once, before a rank starts. */
#include "launcher/front.h"

#include "launcher/binding.h"
#include "launcher/devices.h"
#include "launcher/planmap.h"
#include "launcher/rankenv.h"

#include <stdlib.h>
#include <string.h>

/* Agents by machine: same kernel, same processors. */
static int by_machine(const void *a, const void *b)
{
    const struct front_node *x = *(const struct front_node *const *)a, *y = *(const struct front_node *const *)b;
    int d = strcmp(x->hello.boot_id, y->hello.boot_id);

    if (!d)
        d = strcmp(x->hello.cpus, y->hello.cpus);
    return d;
}

static int by_machine_and_index(const void *a, const void *b)
{
    const struct front_node *x = *(const struct front_node *const *)a, *y = *(const struct front_node *const *)b;
    int d = by_machine(a, b);

    return d ? d : x->index < y->index ? -1 : 1;
}

/* Processors are shared with the ranks of every agent on the same machine (several agents of this job may be
 * there, each in its own network or not): which share of how many each node's first rank is. */
static void find_shares(struct front *f)
{
    const struct front_node **order = xcalloc((size_t)f->place.nodes, sizeof *order);
    int m, from, to, n = f->place.nodes;

    for (m = 0; m < n; m++)
        order[m] = &f->node[m];
    qsort(order, (size_t)n, sizeof *order, by_machine_and_index);
    for (from = 0; from < n; from = to) {
        int total = 0;

        for (to = from; to < n && !by_machine(&order[from], &order[to]); to++) {
            f->site[order[to]->index].first = total;
            total += f->hosts->host[order[to]->index].nslots;
        }
        for (m = from; m < to; m++)
            f->site[order[m]->index].total = total;
    }
    free(order);
}

static int site_devices(const struct front *f, int node, struct front_site *s, struct err *err)
{
    const struct hello *h = &f->node[node].hello;
    const struct host *host = &f->hosts->host[node];
    const char *mask = h->masked ? h->device_mask : NULL, *name = "CUDA_VISIBLE_DEVICES";
    int n = host->nslots, named = 0, i, rc = 0;
    struct buf list = BUF_INIT;

    for (i = 0; i < f->task->env.n; i++) /* --export, the env file: over what the node has */
        if (!strncmp(f->task->env.item[i], name, strlen(name)) && !f->task->env.item[i][strlen(name)])
            mask = NULL;
        else if (!strncmp(f->task->env.item[i], name, strlen(name)) &&
                 f->task->env.item[i][strlen(name)] == '=')
            mask = f->task->env.item[i] + strlen(name) + 1;
    for (i = 0; i < n; i++)
        named |= host->line && host->device[i] != host->slot[i];
    if (!f->task->engine) /* which has no use for one yet */
        rc = devices_choose(mask, h->devices, host->device, n, named, &list, err);
    s->devices = list.len ? buf_detach(&list) : xstrdup("");
    buf_clear(&list);
    return rc;
}

/* The NUMA node of each rank's GPU, where the entries are numbers. Owned; NULL: no devices. */
static int *near_numa(const struct topo *t, const char *devices, int n)
{
    int *near = *devices ? xcalloc((size_t)n, sizeof *near) : NULL, i;

    for (i = 0; near && i < n; i++) {
        size_t len = strcspn(devices, ",");
        int gpu = strspn(devices, "0123456789") == len ? atoi(devices) : -1;

        near[i] = gpu >= 0 && gpu < t->ngpus ? t->gpu_numa[gpu] : -1;
        devices += len + (devices[len] == ',');
    }
    return near;
}

static int site_node(struct front *f, int node, struct err *err)
{
    const struct hello *h = &f->node[node].hello;
    struct front_site *s = &f->site[node];
    int *near, rc;

    s->n = f->place.first[node + 1] - f->place.first[node];
    s->rank = xcalloc((size_t)s->n + 1, sizeof *s->rank);
    if (site_devices(f, node, s, err))
        return -1;
    near = near_numa(&h->topo, s->devices, s->n);
    rc = binding_make(&h->topo, &f->task->bind, s->first, s->total, s->n, near, s->rank, err);
    free(near);
    return rc;
}

int front_sites(struct front *f)
{
    int m, bad = 0;

    f->site = xcalloc((size_t)f->place.nodes, sizeof *f->site);
    find_shares(f);
    for (m = 0; m < f->place.nodes; m++)
        bad += site_node(f, m, &f->node[m].why) != 0;
    return bad;
}

void front_sites_clear(struct front *f)
{
    int m;

    for (m = 0; f->site && m < f->place.nodes; m++) {
        binding_clear(f->site[m].rank, f->site[m].n);
        free(f->site[m].rank);
        free(f->site[m].devices);
    }
    free(f->site);
    f->site = NULL;
}

void front_print_map(const struct front *f, struct buf *out)
{
    struct map_rank *ranks = xcalloc((size_t)f->place.world, sizeof *ranks);
    const struct task *t = f->task;
    int m, i;

    for (m = 0; m < f->place.nodes; m++) {
        const struct front_site *s = &f->site[m];
        struct map_rank *r = ranks + f->place.first[m];

        for (i = 0; i < s->n; i++) {
            r[i].cores = s->rank[i].cpus;
            r[i].numa = s->rank[i].numa;
        }
        map_devices(r, s->n, s->devices);
    }
    map_print(f->hosts, &f->place, ranks, out);
    buf_addf(out, "\nMASTER_ADDR   %s\nMASTER_PORT   %d\n", t->master_addr ? t->master_addr
             : f->address[0].address, t->master_port);
    for (m = 0; m < f->place.nodes; m++)
        buf_addf(out, "%-13s %s%s%s\n", m ? "" : "network", f->hosts->host[m].name, *f->address[m].interface ? " by "
                 : " by the loopback", f->address[m].interface);
    map_clear(ranks, f->place.world);
}
