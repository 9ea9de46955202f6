/* --standalone, --nproc-per-node auto|gpu|cpu, --nnodes MIN:MAX and --local-addr, once the hosts are known. */
#include "launcher/task.h"

#include "launcher/devices.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int count_gpus(void)
{
    int n = devices_visible(getenv("CUDA_VISIBLE_DEVICES"));

    return n < 0 ? devices_count() : n;
}

/* Processors that we may use, which under a scheduler are fewer than the machine has. */
static int count_cpus(void)
{
    cpu_set_t mask;

    return sched_getaffinity(0, sizeof mask, &mask) ? 1 : CPU_COUNT(&mask);
}

int torch_slots(const struct options *o)
{
    int gpus = o->torch.nproc == NPROC_CPU ? 0 : count_gpus();

    if (gpus || o->torch.nproc == NPROC_GPU)
        return gpus ? gpus : 1; /* none is told by torch_hosts */
    return count_cpus();
}

static int nproc_words(const struct options *o, const struct hosts *hosts, struct err *err)
{
    int local = hosts->source && !strncmp(hosts->source, "local", 5);

    if (o->torch.nproc >= 0 || (o->torch.nproc == NPROC_AUTO && !local))
        return 0; /* a hostfile's slots say it */
    if (!local)
        return err_set(err, ERR_INPUT, "--nproc-per-node %s counts what one machine has, and %s names others; say "
                       "auto for the slots written there, or a number",
                       o->torch.nproc == NPROC_GPU ? "gpu" : "cpu", hosts->source);
    if (o->torch.nproc == NPROC_GPU && !count_gpus())
        return err_set(err, ERR_INPUT, "--nproc-per-node gpu: this machine has no GPU that may be used; say cpu or a "
                       "number");
    return 0;
}

int torch_hosts(const struct options *o, struct hosts *hosts, struct err *err)
{
    const struct torch_options *t = &o->torch;
    struct host_filter first = {.num_nodes = t->nodes_max, .num_slots = -1, .nodes_option = "--nnodes"};

    if (nproc_words(o, hosts, err))
        return -1;
    if (t->nodes_min > hosts->n)
        return err_set(err, ERR_INPUT, "--nnodes %d:%d, but %s has %d host%s; add hosts or lower it", t->nodes_min,
                       t->nodes_max, hosts->source, hosts->n, hosts->n == 1 ? "" : "s");
    if (t->nodes_max && t->nodes_max < hosts->n && hosts_filter(hosts, &first, err))
        return -1;
    if (t->local_addr && hosts->n > 1)
        return err_set(err, ERR_INPUT, "--local-addr is the address of one host, and there are %d; "
                       "--network-interface names the network of all, --master-addr the first host's address",
                       hosts->n);
    return 0;
}
