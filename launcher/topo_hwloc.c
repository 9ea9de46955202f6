/* Topologies that hwloc reads: see topo_hwloc.h. The one file that includes hwloc.h, and not in the agent. */
#include "config.h"

#include "launcher/topo_hwloc.h"

#if HAVE_HWLOC

#include <hwloc.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int first_of(hwloc_const_bitmap_t set)
{
    int i = set ? hwloc_bitmap_first(set) : -1;

    return i < 0 ? 0 : i;
}

static int ancestor_first(hwloc_topology_t h, hwloc_obj_t pu, hwloc_obj_type_t type, int otherwise)
{
    hwloc_obj_t up = hwloc_get_ancestor_obj_by_type(h, type, pu);

    return !up ? otherwise : type == HWLOC_OBJ_CORE ? first_of(up->cpuset) : (int)up->os_index;
}

static void take_cpus(struct topo *t, hwloc_topology_t h)
{
    hwloc_obj_t pu = NULL;

    while ((pu = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_PU, pu))) {
        int cpu = (int)pu->os_index;

        if (cpu >= TOPO_CPUS)
            continue;
        t->cpu = xrealloc(t->cpu, (size_t)(t->n + 1) * sizeof *t->cpu);
        t->cpu[t->n++] = (struct topo_cpu){cpu, ancestor_first(h, pu, HWLOC_OBJ_CORE, cpu),
                                           first_of(pu->nodeset), ancestor_first(h, pu, HWLOC_OBJ_PACKAGE, 0)};
    }
}

struct gpu {
    unsigned long at; /* its bus address as a number */
    int numa;
};

static int by_bus(const void *a, const void *b)
{
    const struct gpu *x = a, *y = b;

    return x->at < y->at ? -1 : x->at > y->at;
}

/* In the order of their bus addresses, which is that of CUDA's numbers; hwloc goes by sockets. */
static void take_gpus(struct topo *t, hwloc_topology_t h)
{
    hwloc_obj_t pci = NULL;
    struct gpu *gpu = NULL;
    int n = 0;

    while ((pci = hwloc_get_next_pcidev(h, pci))) {
        const struct hwloc_pcidev_attr_s *p = &pci->attr->pcidev;
        hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(h, pci);

        if (p->vendor_id != 0x10de || (p->class_id != 0x0300 && p->class_id != 0x0302))
            continue;
        gpu = xrealloc(gpu, (size_t)(n + 1) * sizeof *gpu);
        gpu[n++] = (struct gpu){(unsigned long)p->domain << 16 | (unsigned long)p->bus << 8 | p->dev << 3 | p->func,
                                near && near->nodeset ? first_of(near->nodeset) : -1};
    }
    if (n)
        qsort(gpu, (size_t)n, sizeof *gpu, by_bus);
    t->gpu_numa = xcalloc((size_t)n + 1, sizeof *t->gpu_numa);
    for (; t->ngpus < n; t->ngpus++)
        t->gpu_numa[t->ngpus] = gpu[t->ngpus].numa;
    free(gpu);
}

int topo_hwloc(struct topo *t, const char *what, struct err *err)
{
    hwloc_topology_t h;
    int rc = 0;

    *t = (struct topo){0};
    hwloc_topology_init(&h);
    hwloc_topology_set_io_types_filter(h, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (what && !access(what, F_OK))
        rc = hwloc_topology_set_xml(h, what);
    else if (what)
        rc = strchr(what, ':') ? hwloc_topology_set_synthetic(h, what) : -1;
    if (!rc)
        rc = hwloc_topology_load(h);
    if (!rc) {
        take_cpus(t, h);
        take_gpus(t, h);
        topo_sort(t);
    }
    hwloc_topology_destroy(h);
    if (rc || !t->n)
        return err_set(err, ERR_INPUT, "--topology %s: neither a file that `lstopo FILE.xml` wrote nor a description "
                       "such as 'package:2 numa:2 core:8 pu:2'", what ? what : "");
    return 0;
}

#else

int topo_hwloc(struct topo *t, const char *what, struct err *err)
{
    *t = (struct topo){0};
    return err_set(err, ERR_INPUT_LIMIT, "--topology %s: this build has no hwloc; install libhwloc-dev and configure "
                   "--with-hwloc", what ? what : "");
}

#endif
