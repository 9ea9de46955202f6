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

/* Both agents run on the same machine and see the same network. */
static int same_place(const struct hello *a, const struct hello *b)
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

/* All nodes, and which of their addresses another machine has as well: that of a bridge that every machine has under
 * this number, as docker0. Such an address leads each machine to itself. */
struct nodes {
    const struct hello *const *hello;
    int n;
    uint8_t **twice; /* [n][nifaces] */
};

struct entry {
    const struct hello *hello;
    int node, iface;
};

static int by_address(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return strcmp(x->hello->iface[x->iface].address, y->hello->iface[y->iface].address);
}

/* One run of equal addresses. */
static void mark(struct nodes *ns, const struct entry *e, int n)
{
    int apart = 0, k;

    for (k = 1; k < n; k++)
        apart |= !same_place(e[0].hello, e[k].hello);
    for (k = 0; k < n; k++)
        ns->twice[e[k].node][e[k].iface] = (uint8_t)apart;
}

static void nodes_init(struct nodes *ns, const struct hello *const *hello, int n)
{
    struct entry *e = NULL;
    int total = 0, m, i, from, to;

    *ns = (struct nodes){hello, n, xcalloc((size_t)n, sizeof *ns->twice)};
    for (m = 0; m < n; m++)
        total += hello[m]->nifaces;
    e = xcalloc((size_t)total + 1, sizeof *e);
    for (m = total = 0; m < n; m++) {
        ns->twice[m] = xcalloc((size_t)hello[m]->nifaces + 1, 1);
        for (i = 0; i < hello[m]->nifaces; i++)
            if (!hello[m]->iface[i].loopback)
                e[total++] = (struct entry){hello[m], m, i};
    }
    qsort(e, (size_t)total, sizeof *e, by_address);
    for (from = 0; from < total; from = to) {
        for (to = from + 1; to < total && !by_address(&e[from], &e[to]); to++)
            ;
        mark(ns, e + from, to - from);
    }
    free(e);
}

static void nodes_clear(struct nodes *ns)
{
    int m;

    for (m = 0; m < ns->n; m++)
        free(ns->twice[m]);
    free(ns->twice);
}

static int usable(const struct nodes *ns, int node, int i)
{
    const struct hello_iface *f = &ns->hello[node]->iface[i];

    return !f->loopback && !link_local(f->address) && !is_bridge(f->name) && !ns->twice[node][i];
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
static int choose_net(const struct nodes *ns, const struct net *net, struct address *out)
{
    int m, i;

    for (m = 0; m < ns->n; m++) {
        const struct hello *h = ns->hello[m];

        for (i = 0; i < h->nifaces; i++)
            if (usable(ns, m, i) && net_has(net, h->iface[i].address))
                break;
        if (i == h->nifaces)
            return 0;
        take_iface(&out[m], &h->iface[i]);
    }
    return 1;
}

static int choose_wanted(const struct nodes *ns, const char *const *names, const char *want,
                         struct address *out, struct err *err)
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
    for (m = 0; m < ns->n; m++) {
        const struct hello *h = ns->hello[m];

        for (i = 0; i < h->nifaces; i++)
            if (slash ? net_has(&net, h->iface[i].address) : !strcmp(h->iface[i].name, want))
                break;
        if (i == h->nifaces)
            return err_set(err, ERR_INPUT, "host %s has no address %s %s; see `ip addr` there, or leave "
                           "--network-interface out", names[m], slash ? "in" : "on", want);
        if (ns->twice[m][i])
            return err_set(err, ERR_INPUT, "--network-interface %s: the address %s of host %s is another host's too; "
                           "name a network in which each has its own", want, h->iface[i].address, names[m]);
        take_iface(&out[m], &h->iface[i]);
    }
    return 0;
}

static int all_here(const struct hello *const *hello, int n)
{
    int m;

    for (m = 1; m < n; m++)
        if (!same_place(hello[0], hello[m]))
            return 0;
    return 1;
}

/* No network is common to all: each node's address towards the front end, else its first usable one. Routers join
 * them, or the ranks say so. */
static int choose_first(const struct nodes *ns, const char *const *names, struct address *out, struct err *err)
{
    int m, i;

    for (m = 0; m < ns->n; m++) {
        const struct hello *h = ns->hello[m];

        for (i = 0; i < h->nifaces && !(usable(ns, m, i) && is_toward(h, i)); i++)
            ;
        for (i = i < h->nifaces ? i : 0; i < h->nifaces && !usable(ns, m, i); i++)
            ;
        if (i == h->nifaces)
            return err_set(err, ERR_NODE, "host %s has no network address that the other hosts could "
                           "use; bring its network up or name one with --network-interface", names[m]);
        take_iface(&out[m], &h->iface[i]);
    }
    return 0;
}

static int choose(const struct nodes *ns, const char *const *names, struct address *out, struct err *err)
{
    const struct hello *h = ns->hello[0];
    struct net net;
    int i, pass;

    for (pass = 0; pass < 2; pass++) /* the network towards the front end first */
        for (i = 0; i < h->nifaces; i++)
            if (is_toward(h, i) == !pass && usable(ns, 0, i) &&
                !net_of(h->iface[i].address, h->iface[i].prefix, &net) && choose_net(ns, &net, out))
                return 0;
    return choose_first(ns, names, out, err);
}

int address_choose(const struct hello *const *hello, const char *const *names, int n, const char *want,
                   struct address *out, struct err *err)
{
    struct nodes ns;
    int m, rc = 0;

    memset(out, 0, (size_t)n * sizeof *out);
    nodes_init(&ns, hello, n);
    if (want)
        rc = choose_wanted(&ns, names, want, out, err);
    else if (!all_here(hello, n))
        rc = choose(&ns, names, out, err);
    else
        for (m = 0; m < n; m++)
            take(&out[m], "127.0.0.1", "", "");
    nodes_clear(&ns);
    return rc;
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
