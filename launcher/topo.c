/* Processors, cores, NUMA nodes, sockets: see topo.h. sysfs is read file by file, because the agent is static
 * and a library that knows machines is not worth its size there. */
#include "launcher/topo.h"

#include "launcher/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The first line of SYS/PATH; "" when it can't be read. */
static void read_line(const char *sys, const char *path, char *out, size_t size)
{
    char *full = xasprintf("%s/%s", sys, path);
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);

    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = 0;
    out[strcspn(out, "\n")] = 0;
    free(full);
}

static int read_number(const char *sys, const char *path, int otherwise)
{
    char line[64], *end;
    long v;

    read_line(sys, path, line, sizeof line);
    v = strtol(line, &end, 0);
    return end == line || v < 0 || v > 65535 ? otherwise : (int)v;
}

/* The first processor of the list in SYS/PATH, or otherwise. */
static int read_first(const char *sys, const char *path, int otherwise)
{
    char line[8192];
    uint8_t set[TOPO_CPUS];

    read_line(sys, path, line, sizeof line);
    if (cpus_parse(line, set, TOPO_CPUS))
        return otherwise;
    for (int c = 0; c < TOPO_CPUS; c++)
        if (set[c])
            return c;
    return otherwise;
}

static void read_cpus(struct topo *t, const char *sys, const uint8_t *allowed)
{
    char path[128];

    for (int c = 0; c < TOPO_CPUS; c++) {
        struct topo_cpu *k;

        if (!allowed[c])
            continue;
        t->cpu = xrealloc(t->cpu, (size_t)(t->n + 1) * sizeof *t->cpu);
        k = &t->cpu[t->n++];
        k->cpu = c;
        k->numa = 0;
        snprintf(path, sizeof path, "devices/system/cpu/cpu%d/topology/thread_siblings_list", c);
        k->core = read_first(sys, path, c);
        snprintf(path, sizeof path, "devices/system/cpu/cpu%d/topology/physical_package_id", c);
        k->socket = read_number(sys, path, 0);
    }
}

static void read_numa(struct topo *t, const char *sys)
{
    uint8_t nodes[TOPO_CPUS], cpus[TOPO_CPUS];
    char line[8192], path[64];

    read_line(sys, "devices/system/node/online", line, sizeof line);
    if (cpus_parse(line, nodes, TOPO_CPUS))
        return;
    for (int m = 0; m < TOPO_CPUS; m++) {
        if (!nodes[m])
            continue;
        snprintf(path, sizeof path, "devices/system/node/node%d/cpulist", m);
        read_line(sys, path, line, sizeof line);
        if (cpus_parse(line, cpus, TOPO_CPUS))
            continue;
        for (int i = 0; i < t->n; i++)
            if (cpus[t->cpu[i].cpu])
                t->cpu[i].numa = m;
    }
}

static int is_gpu(const char *sys, const char *name)
{
    char path[PATH_MAX];
    int vendor, class;
    char line[64];

    snprintf(path, sizeof path, "bus/pci/devices/%s/vendor", name);
    vendor = read_number(sys, path, 0);
    snprintf(path, sizeof path, "bus/pci/devices/%s/class", name);
    read_line(sys, path, line, sizeof line);
    class = (int)(strtol(line, NULL, 16) >> 8); /* 0300: VGA, 0302: 3D controller */
    return vendor == 0x10de && (class == 0x0300 || class == 0x0302);
}

/* CUDA numbers GPUs of one kind by bus address. */
static void read_gpus(struct topo *t, const char *sys)
{
    char *folder = xasprintf("%s/bus/pci/devices", sys), path[PATH_MAX];
    struct dirent **names = NULL;
    int n = scandir(folder, &names, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        if (is_gpu(sys, names[i]->d_name)) {
            snprintf(path, sizeof path, "bus/pci/devices/%s/numa_node", names[i]->d_name);
            t->gpu_numa = xrealloc(t->gpu_numa, (size_t)(t->ngpus + 1) * sizeof *t->gpu_numa);
            t->gpu_numa[t->ngpus++] = read_number(sys, path, -1);
        }
        free(names[i]);
    }
    free(names);
    free(folder);
}

char *topo_rdma(const char *sys, const char *interface)
{
    char *folder = xasprintf("%s/class/net/%s/device/infiniband", sys, interface), *found = NULL;
    char *port = xasprintf("class/net/%s/dev_port", interface);
    DIR *d = opendir(folder);
    struct dirent *e;

    while (d && !found && (e = readdir(d)))
        if (e->d_name[0] != '.')
            found = xasprintf("%s:%d", e->d_name, read_number(sys, port, 0) + 1);
    if (d)
        closedir(d);
    free(folder);
    free(port);
    return found ? found : xstrdup("");
}

static int by_place(const void *a, const void *b)
{
    const struct topo_cpu *x = a, *y = b;

    if (x->socket != y->socket)
        return x->socket < y->socket ? -1 : 1;
    if (x->numa != y->numa)
        return x->numa < y->numa ? -1 : 1;
    if (x->core != y->core)
        return x->core < y->core ? -1 : 1;
    return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

void topo_sort(struct topo *t)
{
    if (t->n)
        qsort(t->cpu, (size_t)t->n, sizeof *t->cpu, by_place);
}

void topo_read(struct topo *t, const char *sys, const uint8_t *allowed)
{
    *t = (struct topo){0};
    read_cpus(t, sys, allowed);
    read_numa(t, sys);
    read_gpus(t, sys);
    topo_sort(t);
}

int topo_allowed(uint8_t allowed[TOPO_CPUS])
{
    unsigned long bits[TOPO_CPUS / 8 / sizeof(unsigned long)] = {0};
    const int per = 8 * (int)sizeof *bits;
    int n = 0;

    /* not the C library's call: its fixed set ends at 1,024 processors */
    if (syscall(SYS_sched_getaffinity, 0, sizeof bits, bits) < 0)
        bits[0] = 1;
    for (int c = 0; c < TOPO_CPUS; c++) {
        allowed[c] = bits[c / per] >> (c % per) & 1;
        n += allowed[c];
    }
    return n;
}

void topo_clear(struct topo *t)
{
    free(t->cpu);
    free(t->gpu_numa);
    *t = (struct topo){0};
}

void topo_put(struct buf *out, const struct topo *t)
{
    put_u16(out, (uint16_t)t->n);
    for (int i = 0; i < t->n; i++) {
        put_u16(out, (uint16_t)t->cpu[i].cpu);
        put_u16(out, (uint16_t)t->cpu[i].core);
        put_u16(out, (uint16_t)t->cpu[i].numa);
        put_u16(out, (uint16_t)t->cpu[i].socket);
    }
    put_u16(out, (uint16_t)t->ngpus);
    for (int i = 0; i < t->ngpus; i++)
        put_u16(out, (uint16_t)(t->gpu_numa[i] + 1));
}

void topo_get(struct reader *r, struct topo *t)
{
    int n = get_u16(r);

    *t = (struct topo){0};
    if (n > TOPO_CPUS || (size_t)(r->end - r->p) < 8 * (size_t)n)
        n = 0, r->failed = 1;
    t->cpu = xcalloc((size_t)n + 1, sizeof *t->cpu);
    for (; t->n < n; t->n++) {
        struct topo_cpu *k = &t->cpu[t->n];

        k->cpu = get_u16(r);
        k->core = get_u16(r);
        k->numa = get_u16(r);
        k->socket = get_u16(r);
        if (k->cpu >= TOPO_CPUS || k->core >= TOPO_CPUS)
            r->failed = 1;
    }
    n = get_u16(r);
    if ((size_t)(r->end - r->p) < 2 * (size_t)n)
        n = 0, r->failed = 1;
    t->gpu_numa = xcalloc((size_t)n + 1, sizeof *t->gpu_numa);
    for (; t->ngpus < n; t->ngpus++)
        t->gpu_numa[t->ngpus] = get_u16(r) - 1;
    topo_sort(t);
}
