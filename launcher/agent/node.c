/* What this node is: the facts of HELLO. Reads /proc, /sys and the interfaces; a file that is not
 * there leaves its field empty or 0. */
#include "launcher/agent/agent.h"
#include "launcher/devices.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The start of a small file without its last newline; "" when it can't be read. Owned. */
static char *read_text(const char *path)
{
    char text[8192];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    return xstrdup(text);
}

/* "NAME:   123 kB" in a file of such lines, in bytes. */
static uint64_t read_kb(const char *path, const char *name)
{
    FILE *f = fopen(path, "re");
    char line[256];
    uint64_t kb = 0;

    while (f && fgets(line, sizeof line, f)) {
        const char *p = strstr(line, name);

        if (p && p[strlen(name)] == ':') {
            kb = strtoull(p + strlen(name) + 1, NULL, 10);
            break;
        }
    }
    if (f)
        fclose(f);
    return kb * 1024;
}

int node_cores(void)
{
    uint8_t set[TOPO_CPUS];

    return topo_allowed(set);
}

static int prefix_of(const uint8_t *mask, int bytes)
{
    int bits = 0;

    for (int i = 0; i < bytes; i++)
        bits += __builtin_popcount(mask[i]);
    return bits;
}

static void add_iface(struct hello *h, const struct ifaddrs *a)
{
    int v6 = a->ifa_addr->sa_family == AF_INET6;
    const void *raw =
        v6 ? (const void *)&((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr
           : (const void *)&((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr;
    const void *mask =
        v6 ? (const void *)&((const struct sockaddr_in6 *)(const void *)a->ifa_netmask)->sin6_addr
           : (const void *)&((const struct sockaddr_in *)(const void *)a->ifa_netmask)->sin_addr;
    char text[INET6_ADDRSTRLEN];
    struct hello_iface *f;

    if (!inet_ntop(a->ifa_addr->sa_family, raw, text, sizeof text))
        return;
    h->iface = xrealloc(h->iface, (size_t)(h->nifaces + 1) * sizeof *h->iface);
    f = &h->iface[h->nifaces++];
    f->name = xstrdup(a->ifa_name);
    f->address = xstrdup(text);
    f->prefix = a->ifa_netmask ? prefix_of(mask, v6 ? 16 : 4) : 0;
    f->loopback = (a->ifa_flags & IFF_LOOPBACK) != 0;
    f->rdma = topo_rdma("/sys", a->ifa_name);
}

/* Up, with an address that reaches beyond the link. */
static void find_ifaces(struct hello *h)
{
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all))
        return;
    for (struct ifaddrs *a = all; a; a = a->ifa_next) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)a->ifa_addr;

        if (!a->ifa_addr || !a->ifa_netmask || !(a->ifa_flags & IFF_UP))
            continue;
        if (a->ifa_addr->sa_family == AF_INET ||
            (a->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)))
            add_iface(h, a);
    }
    freeifaddrs(all);
}

/* "3.4.5.6 51000 10.0.0.2 22": the third word is ours, as the front end (or its bastion) knows us. */
static char *ssh_address(void)
{
    const char *p = getenv("SSH_CONNECTION");

    for (int i = 0; p && i < 2; i++) {
        p = strchr(p, ' ');
        p += p != NULL;
    }
    return p ? xstrndup(p, strcspn(p, " ")) : xstrdup("");
}

static char *own_folder(void)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    while (n > 0 && self[n - 1] != '/')
        n--;
    return n > 1 ? xstrndup(self, (size_t)n - 1) : xstrdup(PKGLIBEXECDIR);
}

char *node_rank_program(const struct spawn *s, struct err *err)
{
    char *self = own_folder(), *found = xstrdup(s->argv[0]);
    char *places[] = {xasprintf("%s/ds-rank", self), xstrdup(s->rank_program), xstrdup(PKGLIBEXECDIR "/ds-rank"),
                      xstrdup(BINDIR "/ds-rank")};

    free(self);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!*found && !access(places[i], X_OK)) {
            free(found);
            found = xstrdup(places[i]);
        }
        free(places[i]);
    }
    if (!*found)
        err_set(err, ERR_INPUT_FILE,
                "%s: ds-rank is not there: neither beside ds-agent, nor %s%snor in " PKGLIBEXECDIR " or " BINDIR
                "; install the package at the same path as here, or name the one there "
                "with DS_RANK=PATH or --set run.program=PATH",
                s->host, s->rank_program, *s->rank_program ? " as here, " : "");
    return found;
}

void node_hello(struct hello *h)
{
    const char *mask = getenv("CUDA_VISIBLE_DEVICES");
    uint8_t set[TOPO_CPUS];
    struct buf cpus = BUF_INIT;
    struct utsname u;
    char cwd[4096];

    memset(h, 0, sizeof *h);
    memset(&u, 0, sizeof u);
    uname(&u);
    h->build_id = xstrdup(build_id());
    h->machine = xstrdup(u.machine);
    h->kernel = xstrdup(u.release);
    h->hostname = xstrdup(u.nodename);
    h->boot_id = read_text("/proc/sys/kernel/random/boot_id");
    h->cwd = xstrdup(getcwd(cwd, sizeof cwd) ? cwd : "");
    h->pid = getpid();
    h->cores = topo_allowed(set);
    cpus_print(set, TOPO_CPUS, &cpus);
    h->cpus = buf_detach(&cpus);
    h->mem_bytes = read_kb("/proc/meminfo", "MemTotal");
    h->mem_available_bytes = read_kb("/proc/meminfo", "MemAvailable");
    h->devices = devices_count();
    h->device_mask = xstrdup(mask ? mask : "");
    h->masked = mask != NULL;
    h->toward = ssh_address();
    find_ifaces(h);
    topo_read(&h->topo, "/sys", set);
}
