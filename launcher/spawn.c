/* HELLO, SPAWN and CHECK payloads: see spawn.h. Each struct has its put and get side by side, in
 * the same order of fields. Invariant: a count from the wire is believed only as far as bytes are
 * left, so a bad payload can't make us allocate more than a small multiple of its own size, and a world of at most
 * SPAWN_MAX_WORLD. */
#include "launcher/spawn.h"

#include <stdlib.h>
#include <string.h>

/* A count of elements that take at least min bytes each; fails the reader when they can't all be
 * there. */
static int get_count(struct reader *r, size_t min)
{
    uint32_t n = get_u32(r);

    if (n > (size_t)(r->end - r->p) / min) {
        r->failed = 1;
        r->p = r->end;
        return 0;
    }
    return (int)n;
}

static void put_strings(struct buf *out, char *const *s, int n)
{
    put_u32(out, (uint32_t)n);
    for (int i = 0; i < n; i++)
        put_str(out, s[i]);
}

/* NULL at the end. */
static char **get_strings(struct reader *r, int *n)
{
    int count = get_count(r, 4);
    char **s = xcalloc((size_t)count + 1, sizeof *s);

    for (int i = 0; i < count; i++)
        s[i] = get_str(r);
    *n = count;
    return s;
}

static void free_strings(char **s, int n)
{
    for (int i = 0; i < n; i++)
        free(s[i]);
    free(s);
}

static int get_int(struct reader *r)
{
    return (int)(int32_t)get_u32(r);
}

static void put_int(struct buf *out, int v)
{
    put_u32(out, (uint32_t)v);
}

static void put_ranks(struct buf *out, const struct spawn_rank *rank, int n)
{
    put_u32(out, (uint32_t)n);
    for (int i = 0; i < n; i++) {
        put_int(out, rank[i].rank);
        put_int(out, rank[i].local_rank);
        put_int(out, rank[i].threads);
        put_str(out, rank[i].cpus);
    }
}

static struct spawn_rank *get_ranks(struct reader *r, int *n)
{
    struct spawn_rank *rank;

    *n = get_count(r, 16);
    rank = xcalloc((size_t)*n, sizeof *rank);
    for (int i = 0; i < *n; i++) {
        rank[i].rank = get_int(r);
        rank[i].local_rank = get_int(r);
        rank[i].threads = get_int(r);
        rank[i].cpus = get_str(r);
    }
    return rank;
}

static void put_runs(struct buf *out, const struct spawn *s)
{
    struct buf runs = BUF_INIT;

    if (!s->node_runs.len)
        put_node_of(&runs, s->node_of, s->world);
    put_bytes(out, s->node_runs.len ? s->node_runs.data : buf_str(&runs),
              (uint32_t)(s->node_runs.len + runs.len));
    buf_clear(&runs);
}

void spawn_put(struct buf *out, const struct spawn *s)
{
    put_str(out, s->job_id);
    put_str(out, s->host);
    put_int(out, s->restarts);
    put_int(out, s->nodes);
    put_int(out, s->node);
    put_int(out, s->world);
    put_runs(out, s);
    put_str(out, s->address);
    put_str(out, s->interface);
    put_str(out, s->master_addr);
    put_int(out, s->master_port);
    buf_add(out, s->key, sizeof s->key);
    put_i64(out, s->grace_ms);
    put_i64(out, s->ping_limit_ms);
    put_i64(out, s->check_ms);
    put_u8(out, s->engine != 0);
    put_int(out, s->pass_local_rank);
    put_int(out, s->stdin_rank);
    put_strings(out, s->argv, s->argc);
    put_str(out, s->rank_program);
    put_str(out, s->cwd);
    put_int(out, s->umask);
    put_strings(out, s->env, s->nenv);
    put_bytes(out, s->job, (uint32_t)s->job_len);
    put_ranks(out, s->rank, s->nranks);
    put_str(out, s->devices);
    put_str(out, s->rdma);
    put_int(out, s->max_restarts);
    put_str(out, s->run_id);
    put_str(out, s->role);
    put_i64(out, s->core_bytes);
    put_str(out, s->venv);
    put_int(out, s->nlate);
}

static void get_world(struct reader *r, struct spawn *s)
{
    const uint8_t *runs;
    uint32_t n;

    s->nodes = get_int(r);
    s->node = get_int(r);
    s->world = get_int(r);
    runs = get_bytes(r, &n);
    buf_add(&s->node_runs, runs, n);
    if (s->world < 0 || s->world > SPAWN_MAX_WORLD)
        r->failed = 1;
}

static void get_key(struct reader *r, struct spawn *s)
{
    for (size_t i = 0; i < sizeof s->key; i++)
        s->key[i] = get_u8(r);
}

/* Every rank of the world is on one of the nodes. */
static int runs_check(const struct spawn *s, struct err *err)
{
    struct reader r = reader_of(s->node_runs.data, s->node_runs.len);
    uint64_t world = 0;

    while (r.p < r.end) {
        uint64_t first = get_u32(&r), nodes = get_u32(&r), ranks = get_u32(&r);

        if (r.failed || !nodes || !ranks || first + nodes > (uint64_t)s->nodes ||
            ranks > SPAWN_MAX_WORLD)
            return err_set(err, ERR_JOB_INTERNAL, "ranks on nodes %llu to %llu of %d", (unsigned long long)first,
                           (unsigned long long)(first + nodes), s->nodes);
        world += nodes * ranks;
    }
    if (world != (uint64_t)s->world)
        return err_set(err, ERR_JOB_INTERNAL, "%llu of %d ranks are on a node", (unsigned long long)world, s->world);
    return 0;
}

/* What the rest of the agent relies on. */
static int spawn_check(const struct spawn *s, struct err *err)
{
    if (s->world < 0 || s->nodes < 1 || s->node < 0 || s->node >= s->nodes)
        return err_set(err, ERR_JOB_INTERNAL, "node %d of %d, %d ranks", s->node, s->nodes,
                       s->world);
    if (s->argc < 1)
        return err_set(err, ERR_JOB_INTERNAL, "no program to start");
    if (s->pass_local_rank < 0 || s->pass_local_rank > s->argc)
        return err_set(err, ERR_JOB_INTERNAL, "--local_rank in place %d of %d", s->pass_local_rank, s->argc);
    if (s->nlate < 0 || s->nlate > s->nenv)
        return err_set(err, ERR_JOB_INTERNAL, "%d of %d variables", s->nlate, s->nenv);
    if (runs_check(s, err))
        return -1;
    for (int i = 0; i < s->nranks; i++) {
        const struct spawn_rank *a = &s->rank[i];

        if (a->rank < 0 || a->rank >= s->world || node_of_rank(s->node_runs.data, s->node_runs.len, a->rank) != s->node)
            return err_set(err, ERR_JOB_INTERNAL, "rank %d is not one of node %d", a->rank,
                           s->node);
        if (a->local_rank != i || (i && s->rank[i - 1].rank >= a->rank))
            return err_set(err, ERR_JOB_INTERNAL, "rank %d has local rank %d in place %d", a->rank,
                           a->local_rank, i);
    }
    return 0;
}

int spawn_get(struct spawn *s, const void *data, size_t n, struct err *err)
{
    struct reader r = reader_of(data, n);
    const uint8_t *job;
    uint32_t job_len;
    int rc;

    memset(s, 0, sizeof *s);
    s->job_id = get_str(&r);
    s->host = get_str(&r);
    s->restarts = get_int(&r);
    get_world(&r, s);
    s->address = get_str(&r);
    s->interface = get_str(&r);
    s->master_addr = get_str(&r);
    s->master_port = get_int(&r);
    get_key(&r, s);
    s->grace_ms = get_i64(&r);
    s->ping_limit_ms = get_i64(&r);
    s->check_ms = get_i64(&r);
    s->engine = get_u8(&r);
    s->pass_local_rank = get_int(&r);
    s->stdin_rank = get_int(&r);
    s->argv = get_strings(&r, &s->argc);
    s->rank_program = get_str(&r);
    s->cwd = get_str(&r);
    s->umask = get_int(&r);
    s->env = get_strings(&r, &s->nenv);
    job = get_bytes(&r, &job_len);
    s->job = xmalloc(job_len + 1u);
    if (job_len)
        memcpy(s->job, job, job_len);
    s->job[job_len] = 0;
    s->job_len = job_len;
    s->rank = get_ranks(&r, &s->nranks);
    s->devices = get_str(&r);
    s->rdma = get_str(&r);
    s->max_restarts = get_int(&r);
    s->run_id = get_str(&r);
    s->role = get_str(&r);
    s->core_bytes = get_i64(&r);
    s->venv = get_str(&r);
    s->nlate = get_int(&r);
    rc = reader_done(&r) ? spawn_check(s, err)
                         : err_set(err, ERR_JOB_INTERNAL, "the job table is cut short or too long");
    if (rc)
        spawn_clear(s);
    return rc;
}

void spawn_clear(struct spawn *s)
{
    free(s->job_id);
    free(s->host);
    buf_clear(&s->node_runs);
    free(s->address);
    free(s->interface);
    free(s->master_addr);
    free_strings(s->argv, s->argc);
    free(s->rank_program);
    free(s->cwd);
    free_strings(s->env, s->nenv);
    free(s->job);
    for (int i = 0; i < s->nranks; i++)
        free(s->rank[i].cpus);
    free(s->rank);
    free(s->devices);
    free(s->rdma);
    free(s->run_id);
    free(s->role);
    free(s->venv);
    memset(s, 0, sizeof *s);
}

static void put_ifaces(struct buf *out, const struct hello_iface *iface, int n)
{
    put_u32(out, (uint32_t)n);
    for (int i = 0; i < n; i++) {
        put_str(out, iface[i].name);
        put_str(out, iface[i].address);
        put_int(out, iface[i].prefix);
        put_u8(out, iface[i].loopback != 0);
        put_str(out, iface[i].rdma);
    }
}

static struct hello_iface *get_ifaces(struct reader *r, int *n)
{
    struct hello_iface *iface;

    *n = get_count(r, 17);
    iface = xcalloc((size_t)*n, sizeof *iface);
    for (int i = 0; i < *n; i++) {
        iface[i].name = get_str(r);
        iface[i].address = get_str(r);
        iface[i].prefix = get_int(r);
        iface[i].loopback = get_u8(r);
        iface[i].rdma = get_str(r);
    }
    return iface;
}

void hello_put(struct buf *out, const struct hello *h)
{
    put_str(out, h->build_id); /* first: read alone when the builds differ */
    put_str(out, h->machine);
    put_str(out, h->kernel);
    put_str(out, h->hostname);
    put_str(out, h->boot_id);
    put_str(out, h->cwd);
    put_int(out, h->pid);
    put_int(out, h->cores);
    put_str(out, h->cpus);
    put_u64(out, h->mem_bytes);
    put_u64(out, h->mem_available_bytes);
    put_int(out, h->devices);
    put_int(out, h->port);
    put_ifaces(out, h->iface, h->nifaces);
    topo_put(out, &h->topo);
    put_str(out, h->device_mask);
    put_u8(out, h->masked != 0);
    put_str(out, h->toward);
}

int hello_get(struct hello *h, const void *data, size_t n, struct err *err)
{
    struct reader r = reader_of(data, n);

    memset(h, 0, sizeof *h);
    h->build_id = get_str(&r);
    if (!r.failed && strcmp(h->build_id, build_id())) {
        err_set(err, ERR_NODE,
                "its ds-agent is of another build (%s, this ds-launch is %s); install the same on every host",
                h->build_id, build_id());
        hello_clear(h);
        return -1;
    }
    h->machine = get_str(&r);
    h->kernel = get_str(&r);
    h->hostname = get_str(&r);
    h->boot_id = get_str(&r);
    h->cwd = get_str(&r);
    h->pid = get_int(&r);
    h->cores = get_int(&r);
    h->cpus = get_str(&r);
    h->mem_bytes = get_u64(&r);
    h->mem_available_bytes = get_u64(&r);
    h->devices = get_int(&r);
    h->port = get_int(&r);
    h->iface = get_ifaces(&r, &h->nifaces);
    topo_get(&r, &h->topo);
    h->device_mask = get_str(&r);
    h->masked = get_u8(&r);
    h->toward = get_str(&r);
    if (reader_done(&r))
        return 0;
    hello_clear(h);
    return err_set(err, ERR_NODE, "the agent's greeting is cut short or too long");
}

void hello_clear(struct hello *h)
{
    free(h->build_id);
    free(h->machine);
    free(h->kernel);
    free(h->hostname);
    free(h->boot_id);
    free(h->cwd);
    free(h->cpus);
    for (int i = 0; i < h->nifaces; i++) {
        free(h->iface[i].name);
        free(h->iface[i].address);
        free(h->iface[i].rdma);
    }
    free(h->iface);
    topo_clear(&h->topo);
    free(h->device_mask);
    free(h->toward);
    memset(h, 0, sizeof *h);
}

/* The end of the run of set processors that begins at i. */
static int run_end(const uint8_t *set, int max, int i)
{
    while (i < max && set[i])
        i++;
    return i;
}

void cpus_print(const uint8_t *set, int max, struct buf *out)
{
    const uint8_t *at = memchr(set, 1, (size_t)max);
    int i, end, first = 1;

    for (; at; at = memchr(set + end, 1, (size_t)(max - end))) {
        i = (int)(at - set);
        end = run_end(set, max, i);
        buf_addf(out, first ? "%d" : ",%d", i);
        if (end > i + 1)
            buf_addf(out, "-%d", end - 1);
        first = 0;
    }
}

/* Digits at *p as a number below max, -1 otherwise. */
static int cpu_number(const char **p, int max)
{
    int v = 0;

    if (**p < '0' || **p > '9')
        return -1;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        if ((v = v * 10 + (**p - '0')) >= max)
            return -1;
    return v;
}

int cpus_parse(const char *text, uint8_t *set, int max)
{
    memset(set, 0, (size_t)max);
    for (const char *p = text; *p && *p != '\n';) {
        int from = cpu_number(&p, max), to = from;

        if (from >= 0 && *p == '-') {
            p++;
            to = cpu_number(&p, max);
        }
        if (from < 0 || to < from || (*p && *p != ',' && *p != '\n'))
            return -1;
        memset(set + from, 1, (size_t)(to - from + 1));
        if (*p == ',' && !*++p)
            return -1;
    }
    return 0;
}
