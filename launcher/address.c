/* The choice of addresses: see address.h. A network is an address cut to its prefix length; two interfaces
 * are in one network when family, length and the cut addresses agree. */
#include "launcher/address.h"

#include "engine/base/buf.h"
#include "engine/base/parse.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

struct net {
    int family, bits;
    uint8_t bytes[16];
};

static int net_of(const char *address, int bits, struct net *out)
{
    int i, max;

    memset(out, 0, sizeof *out);
    out->family = strchr(address, ':') ? AF_INET6 : AF_INET;
    max = out->family == AF_INET ? 32 : 128;
    if (inet_pton(out->family, address, out->bytes) != 1 || bits < 0 || bits > max)
        return -1;
    out->bits = bits;
    for (i = bits; i < 128; i++)
        out->bytes[i / 8] &= (uint8_t)~(0x80 >> i % 8);
    return 0;
}

static int net_same(const struct net *a, const struct net *b)
{
    return a->family == b->family && a->bits == b->bits && !memcmp(a->bytes, b->bytes, 16);
}

/* An address of net, whatever the interface's own prefix is. */
static int net_has(const struct net *net, const char *address)
{
    struct net other;

    return !net_of(address, net->bits, &other) && net_same(net, &other);
}

int address_same_place(const struct hello *a, const struct hello *b)
{
    int i;

    if (strcmp(a->boot_id, b->boot_id) || strcmp(a->hostname, b->hostname) ||
        a->nifaces != b->nifaces)
        return 0;
    for (i = 0; i < a->nifaces; i++)
        if (strcmp(a->iface[i].name, b->iface[i].name) ||
            strcmp(a->iface[i].address, b->iface[i].address))
            return 0;
    return 1;
}

static int is_bridge(const char *name)
{
    static const char *const patterns[] = {"docker*", "br-*", "virbr*", "veth*", "cni*", "flannel*",
                                           "cali*", "podman*", "lxc*", "kube-*", "lxdbr*", "incusbr*",
                                           "vmnet*", "vboxnet*", "weave*", NULL};
    int i;

    for (i = 0; patterns[i]; i++)
        if (glob_match(patterns[i], name))
            return 1;
    return 0;
}

static int link_local(const char *address)
{
    return !strncmp(address, "169.254.", 8) || !strncasecmp(address, "fe80:", 5);
}

/* Another machine has the same address: a bridge that every machine has under this number. */
static int elsewhere_too(const struct hello *const *hello, int n, int node, const char *address)
{
    int m, i;

    for (m = 0; m < n; m++)
        for (i = 0; m != node && i < hello[m]->nifaces; i++)
            if (!strcmp(hello[m]->iface[i].address, address) &&
                !address_same_place(hello[m], hello[node]))
                return 1;
    return 0;
}

static int usable(const struct hello *const *hello, int n, int node, int i)
{
    const struct hello_iface *f = &hello[node]->iface[i];

    return !f->loopback && !link_local(f->address) && !is_bridge(f->name) &&
           !elsewhere_too(hello, n, node, f->address);
}

/* By this address the front end came to the node. */
static int is_toward(const struct hello *h, int i)
{
    return h->toward && !strcmp(h->iface[i].address, h->toward);
}

static void take(struct address *out, const char *address, const char *interface, const char *rdma)
{
    free(out->address);
    free(out->interface);
    free(out->rdma);
    out->address = xstrdup(address);
    out->interface = xstrdup(interface);
    out->rdma = xstrdup(rdma ? rdma : "");
}

static void take_iface(struct address *out, const struct hello_iface *f)
{
    take(out, f->address, f->name, f->rdma);
}

/* Every node's address in net. 1 when all have one. */
static int choose_net(const struct hello *const *hello, int n, const struct net *net, int any,
                      struct address *out)
{
    int m, i;

    for (m = 0; m < n; m++) {
        for (i = 0; i < hello[m]->nifaces; i++)
            if ((any || usable(hello, n, m, i)) && net_has(net, hello[m]->iface[i].address))
                break;
        if (i == hello[m]->nifaces)
            return 0;
        take_iface(&out[m], &hello[m]->iface[i]);
    }
    return 1;
}

static int choose_wanted(const struct hello *const *hello, const char *const *names, int n,
                         const char *want, struct address *out, struct err *err)
{
    const char *slash = strchr(want, '/');
    struct net net;
    int64_t bits;
    int m, i;

    if (slash) {
        char *address = xstrndup(want, (size_t)(slash - want));
        int bad = parse_i64(slash + 1, 0, 128, &bits) || net_of(address, (int)bits, &net);

        free(address);
        if (bad)
            return err_set(err, ERR_INPUT, "--network-interface %s: no network such as 10.0.0.0/16", want);
    }
    for (m = 0; m < n; m++) {
        for (i = 0; i < hello[m]->nifaces; i++)
            if (slash ? net_has(&net, hello[m]->iface[i].address)
                      : !strcmp(hello[m]->iface[i].name, want))
                break;
        if (i == hello[m]->nifaces)
            return err_set(err, ERR_INPUT, "host %s has no address %s %s; see `ip addr` there, or leave "
                           "--network-interface out", names[m], slash ? "in" : "on", want);
        take_iface(&out[m], &hello[m]->iface[i]);
    }
    return 0;
}

static int all_here(const struct hello *const *hello, int n)
{
    int m;

    for (m = 1; m < n; m++)
        if (!address_same_place(hello[0], hello[m]))
            return 0;
    return 1;
}

/* No network is common to all: each node's address towards the front end, else its first usable one. Routers join them, or the ranks say so. */
static int choose_first(const struct hello *const *hello, const char *const *names, int n,
                        struct address *out, struct err *err)
{
    int m, i;

    for (m = 0; m < n; m++) {
        for (i = 0; i < hello[m]->nifaces && !(usable(hello, n, m, i) && is_toward(hello[m], i)); i++)
            ;
        for (i = i < hello[m]->nifaces ? i : 0; i < hello[m]->nifaces && !usable(hello, n, m, i); i++)
            ;
        if (i == hello[m]->nifaces)
            return err_set(err, ERR_NODE, "host %s has no network address that the other hosts could "
                           "use; bring its network up or name one with --network-interface", names[m]);
        take_iface(&out[m], &hello[m]->iface[i]);
    }
    return 0;
}

int address_choose(const struct hello *const *hello, const char *const *names, int n, const char *want,
                   struct address *out, struct err *err)
{
    struct net net;
    int i, m;

    memset(out, 0, (size_t)n * sizeof *out);
    if (want)
        return choose_wanted(hello, names, n, want, out, err);
    if (all_here(hello, n)) {
        for (m = 0; m < n; m++)
            take(&out[m], "127.0.0.1", "", "");
        return 0;
    }
    for (m = 0; m < 2; m++) /* the network towards the front end first */
        for (i = 0; i < hello[0]->nifaces; i++) {
            const struct hello_iface *f = &hello[0]->iface[i];

            if (is_toward(hello[0], i) == !m && usable(hello, n, 0, i) &&
                !net_of(f->address, f->prefix, &net) && choose_net(hello, n, &net, 0, out))
                return 0;
        }
    return choose_first(hello, names, n, out, err);
}

void address_clear(struct address *a, int n)
{
    int m;

    for (m = 0; a && m < n; m++) {
        free(a[m].address);
        free(a[m].interface);
        free(a[m].rdma);
        a[m] = (struct address){0};
    }
}
