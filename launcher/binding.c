/* Ranks onto processors: see binding.h. Two ways: shares (core) cut the line of all cores, in the topology's
 * order, into equal pieces; domains (numa, socket) give a rank a whole one and let ranks share it. Invariant:
 * shares neither overlap nor leave a core out. */
#include "launcher/binding.h"

#include "launcher/spawn.h"

#include <stdlib.h>
#include <string.h>

/* What ranks are dealt: units of processors that stay together. */
struct units {
    const struct topo *t;
    int *of; /* [t->n] the unit of each processor, -1: not to be used */
    int n;
};

int bind_to_parse(const char *word, enum bind_to *to)
{
    static const char *const words[] = {"none", "core", "numa", "socket"};

    *to = BIND_AUTO;
    for (int i = 0; word && i < 4; i++)
        if (!strcmp(word, words[i]))
            *to = BIND_NONE + (enum bind_to)i;
    return word && *to == BIND_AUTO ? -1 : 0;
}

/* use[t->n]: the processors of the list, or all. */
static int apply_list(const struct topo *t, const char *list, uint8_t *use, struct err *err)
{
    uint8_t want[TOPO_CPUS], have[TOPO_CPUS] = {0};
    struct buf missing = BUF_INIT, all = BUF_INIT;
    int bad = 0;

    memset(use, 1, (size_t)t->n);
    if (!list)
        return 0;
    if (cpus_parse(list, want, TOPO_CPUS))
        return err_set(err, ERR_INPUT, "the list of processors %s is not like 0,2-4,6", list);
    for (int i = 0; i < t->n; i++) {
        have[t->cpu[i].cpu] = 1;
        use[i] = want[t->cpu[i].cpu];
    }
    cpus_print(have, TOPO_CPUS, &all);
    for (int c = 0; c < TOPO_CPUS; c++) {
        want[c] = want[c] && !have[c];
        bad |= want[c];
    }
    cpus_print(want, TOPO_CPUS, &missing);
    if (bad)
        err_set(err, ERR_INPUT_LIMIT, "--bind-core-list %s: ranks may not use %s here, only %s", list,
                buf_str(&missing), buf_str(&all));
    buf_clear(&missing);
    buf_clear(&all);
    return bad ? -1 : 0;
}

static int unit_key(const struct topo_cpu *c, enum bind_to to)
{
    return to == BIND_CORE ? c->core : to == BIND_NUMA ? c->numa : to == BIND_SOCKET ? c->socket : c->cpu;
}

/* Units in the topology's order; the processors of one stand together there. */
static void cut_units(struct units *u, const struct topo *t, const uint8_t *use, enum bind_to to)
{
    int last = -1;

    u->t = t;
    u->n = 0;
    u->of = xmalloc((size_t)(t->n + 1) * sizeof *u->of);
    for (int i = 0; i < t->n; i++) {
        u->of[i] = -1;
        if (!use[i])
            continue;
        if (last < 0 || unit_key(&t->cpu[i], to) != unit_key(&t->cpu[last], to) ||
            (to == BIND_NUMA && t->cpu[i].socket != t->cpu[last].socket))
            u->n++;
        u->of[i] = u->n - 1;
        last = i;
    }
}

/* Processors of the units from .. to - 1. */
static void take_units(const struct units *u, int from, int to, struct binding_rank *out)
{
    uint8_t cpus[TOPO_CPUS] = {0}, numa[TOPO_CPUS] = {0};
    struct buf a = BUF_INIT, b = BUF_INIT;
    int core = -1;

    out->cores = 0;
    for (int i = 0; i < u->t->n; i++) {
        const struct topo_cpu *c = &u->t->cpu[i];

        if (u->of[i] < from || u->of[i] >= to)
            continue;
        cpus[c->cpu] = 1;
        if (c->numa < TOPO_CPUS)
            numa[c->numa] = 1;
        out->cores += c->core != core;
        core = c->core;
    }
    cpus_print(cpus, TOPO_CPUS, &a);
    cpus_print(numa, TOPO_CPUS, &b);
    out->cpus = a.len ? buf_detach(&a) : xstrdup("");
    out->numa = b.len ? buf_detach(&b) : xstrdup("");
}

/* The unit in which NUMA node numa begins; -1: none. */
static int unit_of_numa(const struct units *u, int numa)
{
    for (int i = 0; i < u->t->n; i++)
        if (u->of[i] >= 0 && u->t->cpu[i].numa == numa)
            return u->of[i];
    return -1;
}

/* order[i]: which share rank i gets. Ranks with GPUs take theirs in the order of the GPUs' NUMA nodes. */
static void share_order(const struct units *u, const int *near, int n, int total, int *order)
{
    int known = near && n == total;

    for (int i = 0; i < n; i++)
        known = known && near[i] >= 0 && unit_of_numa(u, near[i]) >= 0;
    for (int i = 0; i < n; i++) {
        order[i] = i;
        if (!known)
            continue;
        order[i] = 0;
        for (int j = 0; j < n; j++) {
            int a = unit_of_numa(u, near[i]), b = unit_of_numa(u, near[j]);

            order[i] += b < a || (b == a && j < i);
        }
    }
}

static void bind_shares(const struct units *u, int first, int total, int n, const int *near,
                        struct binding_rank *out)
{
    int *order = xcalloc((size_t)n + 1, sizeof *order), per = u->n / total, more = u->n % total;

    share_order(u, near, n, total, order);
    for (int i = 0; i < n; i++) {
        int k = first + order[i], from = k * per + (k < more ? k : more);

        take_units(u, from, from + per + (k < more), &out[i]);
        out[i].cores = out[i].cores > 0 ? out[i].cores : 1;
    }
    free(order);
}

static int domain_of(const struct units *u, int i, int first, int total, int n, const int *near)
{
    int at = -1;

    if (near && i >= first && i < first + n && near[i - first] >= 0)
        at = unit_of_numa(u, near[i - first]);
    return at >= 0 ? at : (int)((int64_t)i * u->n / total);
}

static void bind_domains(const struct units *u, int first, int total, int n, const int *near,
                         struct binding_rank *out)
{
    int *ranks = xcalloc((size_t)u->n + 1, sizeof *ranks);

    for (int i = 0; i < total; i++)
        ranks[domain_of(u, i, first, total, n, near)]++;
    for (int i = 0; i < n; i++) {
        int d = domain_of(u, first + i, first, total, n, near);

        take_units(u, d, d + 1, &out[i]);
        out[i].cores = out[i].cores >= ranks[d] ? out[i].cores / ranks[d] : 1;
    }
    free(ranks);
}

static void bind_nothing(int cores, int total, int n, struct binding_rank *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (struct binding_rank){xstrdup(""), xstrdup(""), cores >= total ? cores / total : 1};
}

int binding_make(const struct topo *t, const struct binding_ask *ask, int first, int total, int n,
                 const int *near, struct binding_rank *out, struct err *err)
{
    enum bind_to to = ask->to == BIND_AUTO ? BIND_CORE : ask->to;
    uint8_t *use = xmalloc((size_t)t->n + 1);
    struct units cores = {0}, units = {0};
    int rc = apply_list(t, ask->list, use, err);

    memset(out, 0, (size_t)n * sizeof *out);
    cut_units(&cores, t, use, BIND_CORE);
    cut_units(&units, t, use, to == BIND_CORE && cores.n < total ? BIND_NONE : to);
    if (rc)
        ;
    else if (to == BIND_CORE && cores.n < total && (ask->to == BIND_CORE || ask->list))
        rc = err_set(err, ERR_INPUT_LIMIT, "%d core%s for %d ranks: ask for fewer slots, or --bind-to numa, "
                     "socket or none", cores.n, cores.n == 1 ? "" : "s", total);
    else if (to == BIND_NONE || units.n < 1 || (to == BIND_CORE && units.n < total))
        bind_nothing(cores.n, total, n, out);
    else if (to == BIND_CORE)
        bind_shares(&units, first, total, n, near, out);
    else
        bind_domains(&units, first, total, n, near, out);
    free(use);
    free(cores.of);
    free(units.of);
    return rc;
}

void binding_clear(struct binding_rank *b, int n)
{
    for (int i = 0; b && i < n; i++) {
        free(b[i].cpus);
        free(b[i].numa);
        b[i] = (struct binding_rank){0};
    }
}
