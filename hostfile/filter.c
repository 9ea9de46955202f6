/* --include, --exclude, --num_nodes, --num_gpus: which of the hosts and slots a job uses.
 *
 * A filter is NODE[@NODE...], NODE = HOSTS[:ITEM[,ITEM...]], HOSTS a node list that stands for one
 * name or several in brackets, ITEM a slot or range of slots; behind "device=" items are device
 * ids. A filter only marks slots of the list it is given; what is marked stays (include) or goes
 * (exclude). The list is changed only when everything held.
 */
#include "hostfile/hostfile.h"

#include "hostfile/ids.h"
#include "hostfile/nodelist.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SLOTS_MOST (1 << 20) /* of all hosts together */

struct filter {
    const char *flag; /* --include or --exclude, for errors */
    const char *text;
    const struct hosts *hosts;
    int *by_name;         /* host indices sorted by name; owned */
    unsigned char **mark; /* [host][slot] named by the filter; owned */
    int *place;           /* [IDS_MAX] scratch of mark_ids, zero between calls; owned */
    struct err *err;
};

static int refuse(const struct filter *f, const char *at, const char *what)
{
    return err_set(f->err, ERR_INPUT,
                   "%s \"%.80s\", column %d: %s; write HOST[:SLOT,...][@HOST...], such as "
                   "w1@w[2-4]:0-3",
                   f->flag, f->text, (int)(at - f->text) + 1, what);
}

static int name_cmp(const void *a, const void *b, void *arg)
{
    const struct hosts *h = arg;

    return strcasecmp(h->host[*(const int *)a].name, h->host[*(const int *)b].name);
}

static int find_host(const struct filter *f, const char *name)
{
    int lo = 0, hi = f->hosts->n;

    while (lo < hi) {
        int mid = (lo + hi) / 2;
        int c = strcasecmp(f->hosts->host[f->by_name[mid]].name, name);

        if (c == 0)
            return f->by_name[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

static int missing_id(const struct filter *f, const struct host *h, int id, int device)
{
    const int *have = device ? h->device : h->slot;

    return err_set(f->err, ERR_INPUT,
                   "%s \"%.80s\": host %.64s has no %s %d (it has %d, from %d to %d); correct the "
                   "filter or the hostfile",
                   f->flag, f->text, h->name, device ? "device" : "slot", id, h->nslots, have[0],
                   have[h->nslots - 1]);
}

/* Marks the slots of host i whose number (or device id) is in ids; each must be there. */
static int mark_ids(struct filter *f, int i, const struct ids *ids, int device)
{
    const struct host *h = &f->hosts->host[i];
    const int *have = device ? h->device : h->slot;
    int rc = 0;

    for (int s = 0; s < h->nslots && ids->n; s++)
        f->place[have[s]] = s + 1;
    for (int k = 0; k < ids->n && rc == 0; k++) {
        int s = f->place[ids->id[k]];

        if (s)
            f->mark[i][s - 1] = 1;
        else
            rc = missing_id(f, h, ids->id[k], device);
    }
    for (int s = 0; s < h->nslots && ids->n; s++)
        f->place[have[s]] = 0;
    return rc;
}

/* ---- one NODE ---- */

struct node {
    struct nodelist names;
    struct ids slots, devices;
    int whole;
};

static void node_clear(struct node *n)
{
    nodelist_clear(&n->names);
    ids_clear(&n->slots);
    ids_clear(&n->devices);
}

/* One address in brackets, or a node list without commas outside brackets. Returns what follows. */
static const char *read_hosts(struct filter *f, struct node *n, const char *s, const char *end)
{
    const char *close = memchr(s, ']', (size_t)(end - s));
    const char *stop = s;
    struct err err = ERR_INIT;
    int depth = 0;

    if (*s == '[' && close && memchr(s, ':', (size_t)(close - s))) {
        ARRAY_GROW(n->names.name, n->names.n, n->names.cap);
        n->names.name[n->names.n++] = xstrndup(s + 1, (size_t)(close - s) - 1);
        return close + 1;
    }
    for (; stop < end && *stop != ':'; stop++) {
        depth += (*stop == '[') - (*stop == ']');
        if (*stop == ',' && depth == 0) {
            refuse(f, stop, "a comma between hosts ('@' stands between hosts, ',' between slots)");
            return NULL;
        }
    }
    if (stop == s) {
        refuse(f, s, "there is no host name");
        return NULL;
    }
    if (nodelist_expand(&n->names, s, (size_t)(stop - s), (int)(s - f->text) + 1, &err)) {
        err_set(f->err, ERR_INPUT, "%s \"%.80s\": %s", f->flag, f->text, err.text);
        return NULL;
    }
    return stop;
}

static int read_ids(struct filter *f, struct ids *ids, const char *s, const char *end)
{
    const char *what;
    size_t at;

    if (ids_parse(ids, s, (size_t)(end - s), &at, &what))
        return refuse(f, s + at, what);
    return 0;
}

/* The part behind ':', split at "device=". */
static int read_items(struct filter *f, struct node *n, const char *s, const char *end)
{
    static const char word[] = "device=";
    const char *dev = memmem(s, (size_t)(end - s), word, strlen(word));

    if (!dev)
        return read_ids(f, &n->slots, s, end);
    if (dev > s && (dev[-1] != ',' || read_ids(f, &n->slots, s, dev - 1)))
        return dev[-1] != ',' ? refuse(f, dev, "device= stands behind ':' or ','") : -1;
    return read_ids(f, &n->devices, dev + strlen(word), end);
}

static int apply_node(struct filter *f, const struct node *n)
{
    for (int i = 0; i < n->names.n; i++) {
        int host = find_host(f, n->names.name[i]);

        if (host < 0)
            return err_set(
                f->err, ERR_INPUT,
                "%s \"%.80s\": there is no host %.64s in %.128s; `ds-launch hosts` prints "
                "those there are",
                f->flag, f->text, n->names.name[i], f->hosts->source);
        if (n->whole)
            memset(f->mark[host], 1, (size_t)f->hosts->host[host].nslots);
        else if (mark_ids(f, host, &n->slots, 0) || mark_ids(f, host, &n->devices, 1))
            return -1;
    }
    return 0;
}

static int read_node(struct filter *f, const char *s, const char *end)
{
    struct node n = {0};
    const char *rest;
    int rc = -1;

    if (s == end)
        return refuse(f, s, "there is no host name");
    rest = read_hosts(f, &n, s, end);
    if (rest && rest < end && *rest != ':') {
        refuse(f, rest, "only ':' and slots may stand behind an address");
    } else if (rest) {
        n.whole = rest == end;
        rc = n.whole ? 0 : read_items(f, &n, rest + 1, end);
        if (rc == 0)
            rc = apply_node(f, &n);
    }
    node_clear(&n);
    return rc;
}

static int read_filter(struct filter *f)
{
    const char *s = f->text;

    for (;;) {
        const char *end = strchrnul(s, '@');

        if (read_node(f, s, end))
            return -1;
        if (!*end)
            return 0;
        s = end + 1;
    }
}

/* ---- what stays ---- */

static void host_free(struct host *h)
{
    free(h->name);
    free(h->user);
    free(h->slot);
    free(h->device);
}

/* Keeps the slots whose mark equals keep, and the hosts that have one. */
static void keep_marked(struct hosts *h, unsigned char *const *mark, int keep)
{
    int n = 0;

    for (int i = 0; i < h->n; i++) {
        struct host *host = &h->host[i];
        int left = 0;

        for (int s = 0; s < host->nslots; s++)
            if (mark[i][s] == keep) {
                host->slot[left] = host->slot[s];
                host->device[left++] = host->device[s];
            }
        host->nslots = left;
        if (left)
            h->host[n++] = *host;
        else
            host_free(host);
    }
    h->n = n;
}

static int any_left(const struct hosts *h, unsigned char *const *mark, int keep)
{
    for (int i = 0; i < h->n; i++)
        for (int s = 0; s < h->host[i].nslots; s++)
            if (mark[i][s] == keep)
                return 1;
    return 0;
}

static int filter_hosts(struct hosts *h, const char *flag, const char *text, int keep,
                        struct err *err)
{
    struct filter f = {.flag = flag, .text = text, .hosts = h, .err = err};
    int n = h->n, rc;

    f.by_name = xcalloc((size_t)h->n + 1, sizeof *f.by_name);
    f.mark = xcalloc((size_t)h->n + 1, sizeof *f.mark);
    f.place = xcalloc(IDS_MAX, sizeof *f.place);
    for (int i = 0; i < h->n; i++) {
        f.by_name[i] = i;
        f.mark[i] = xcalloc((size_t)h->host[i].nslots, 1);
    }
    qsort_r(f.by_name, (size_t)h->n, sizeof *f.by_name, name_cmp, h);
    rc = read_filter(&f);
    if (rc == 0 && !any_left(h, f.mark, keep))
        rc = err_set(err, ERR_INPUT, "%s \"%.80s\" leaves no slot at all; name fewer", flag, text);
    if (rc == 0)
        keep_marked(h, f.mark, keep);
    for (int i = 0; i < n; i++)
        free(f.mark[i]);
    free(f.mark);
    free(f.place);
    free(f.by_name);
    return rc;
}

static int most_slots(const struct host *host)
{
    if (!host->open)
        return host->nslots;
    return host->max_slots ? host->max_slots : SLOTS_MOST;
}

static int check_counts(const struct hosts *h, const struct host_filter *f, struct err *err)
{
    const char *nodes = f->nodes_option ? f->nodes_option : "--num_nodes";
    const char *slots = f->slots_option ? f->slots_option : "--num_gpus";

    if (f->num_nodes == 0 || f->num_nodes < -1)
        return err_set(err, ERR_INPUT, "%s is %d; give 1 to %d", nodes, f->num_nodes, h->n);
    if (f->num_slots == 0 || f->num_slots < -1)
        return err_set(err, ERR_INPUT, "%s is %d; give at least 1", slots, f->num_slots);
    if ((int64_t)f->num_slots * (f->num_nodes > 0 ? f->num_nodes : h->n) > SLOTS_MOST)
        return err_set(err, ERR_INPUT, "%s is %d, which is more than %d ranks in all; lower it", slots,
                       f->num_slots, SLOTS_MOST);
    if (f->num_nodes > h->n)
        return err_set(err, ERR_INPUT,
                       "%s is %d but %.128s has %d host%s; lower it or add "
                       "hosts",
                       nodes, f->num_nodes, h->source, h->n, h->n == 1 ? "" : "s");
    for (int i = 0; i < (f->num_nodes > 0 ? f->num_nodes : h->n); i++)
        if (f->num_slots > most_slots(&h->host[i]))
            return err_set(err, ERR_INPUT,
                           "%s is %d but host %.64s has %d slot%s; lower it or leave the "
                           "host out",
                           slots, f->num_slots, h->host[i].name, most_slots(&h->host[i]),
                           most_slots(&h->host[i]) == 1 ? "" : "s");
    return 0;
}

/* A host without a written number of slots gets n, slot i with device i. */
static void open_slots(struct host *host, int n)
{
    host->slot = xrealloc(host->slot, (size_t)n * sizeof *host->slot);
    host->device = xrealloc(host->device, (size_t)n * sizeof *host->device);
    for (int i = host->nslots; i < n; i++)
        host->slot[i] = host->device[i] = i;
}

static int cut_counts(struct hosts *h, const struct host_filter *f, struct err *err)
{
    if (check_counts(h, f, err))
        return -1;
    while (f->num_nodes > 0 && h->n > f->num_nodes)
        host_free(&h->host[--h->n]);
    for (int i = 0; i < h->n && f->num_slots > 0; i++) {
        if (f->num_slots > h->host[i].nslots)
            open_slots(&h->host[i], f->num_slots);
        h->host[i].nslots = f->num_slots;
    }
    return 0;
}

int hosts_filter(struct hosts *h, const struct host_filter *f, struct err *err)
{
    const char *include = f->include && *f->include ? f->include : NULL;
    const char *exclude = f->exclude && *f->exclude ? f->exclude : NULL;
    int counts = f->num_nodes != -1 || f->num_slots != -1;

    if (include && exclude)
        return err_set(err, ERR_INPUT, "--include and --exclude are both given; keep one of them");
    if ((include || exclude) && counts)
        return err_set(err, ERR_INPUT,
                       "%s cannot be combined with --num_nodes or --num_gpus; keep "
                       "one of the two ways",
                       include ? "--include" : "--exclude");
    if (include)
        return filter_hosts(h, "--include", include, 1, err);
    if (exclude)
        return filter_hosts(h, "--exclude", exclude, 0, err);
    return counts ? cut_counts(h, f, err) : 0;
}
