/* The environment of a rank: see rankenv.h and DESIGN 4.2 (the names that torchrun, deepspeed and
 * Open MPI's users know). Invariant: a name stands in the result at most once. */
#include "launcher/rankenv.h"

#include <stdlib.h>
#include <string.h>

struct env {
    char **v; /* NAME=VALUE, owned; NULL at the end */
    int n, cap;
};

const char *const rankenv_own[] = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "NODE_RANK", "GROUP_RANK",
    "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "CROSS_RANK", "CROSS_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "DS_JOB_ID", "DS_EPOCH", "DS_AGENT_FD", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_ERROR_FILE",
    /* torchrun's, that we never set: the store of the ranks is rank 0's, and no agent's */
    "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_SIGNALS_TO_HANDLE", NULL,
};

/* What it sets unless the user did: an inherited value is the user's, unless a ds-launch is around
 * us. */
static const char *const user_names[] = {
    "OMP_NUM_THREADS",  "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME", "UCX_NET_DEVICES",    "GOMP_SPINCOUNT",
};

/* How often a thread of an engine's rank looks for work before it sleeps, about 0.1 ms. libgomp's own 10 ms starve the
 * rest of the team wherever something else runs on its cores. */
#define SPIN_COUNT 3000

#define COUNT(a) (sizeof(a) / sizeof *(a))

static int is_name(const char *entry, const char *name, size_t len)
{
    return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

static int env_find(const struct env *e, const char *name, size_t len)
{
    for (int i = 0; i < e->n; i++)
        if (is_name(e->v[i], name, len))
            return i;
    return -1;
}

static void env_remove(struct env *e, const char *name, size_t len)
{
    int i = env_find(e, name, len);

    if (i < 0)
        return;
    free(e->v[i]);
    e->v[i] = e->v[--e->n];
    e->v[e->n] = NULL;
}

/* Takes over entry. */
static void env_put(struct env *e, char *entry)
{
    env_remove(e, entry, strcspn(entry, "="));
    ARRAY_GROW(e->v, e->n + 1, e->cap);
    e->v[e->n++] = entry;
    e->v[e->n] = NULL;
}

static int env_has(const struct env *e, const char *name)
{
    return env_find(e, name, strlen(name)) >= 0;
}

static void env_set(struct env *e, const char *name, const char *value)
{
    env_put(e, xasprintf("%s=%s", name, value));
}

static void env_set_int(struct env *e, const char *name, int64_t value)
{
    env_put(e, xasprintf("%s=%lld", name, (long long)value));
}

const char *rankenv_value(char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (; *env; env++)
        if (is_name(*env, name, len))
            return *env + len + 1;
    return NULL;
}

/* base without what an outer ds-launch left, then the user's entries over it. */
static void env_init(struct env *e, const struct spawn *s, char *const *base)
{
    int nested = rankenv_value(base, "DS_JOB_ID") != NULL;

    memset(e, 0, sizeof *e);
    for (; *base; base++)
        if (strchr(*base, '='))
            env_put(e, xstrdup(*base));
    for (size_t i = 0; rankenv_own[i]; i++)
        env_remove(e, rankenv_own[i], strlen(rankenv_own[i]));
    for (size_t i = 0; nested && i < COUNT(user_names); i++)
        env_remove(e, user_names[i], strlen(user_names[i]));
    for (int i = 0; i < s->nenv; i++) {
        if (strchr(s->env[i], '='))
            env_put(e, xstrdup(s->env[i]));
        else
            env_remove(e, s->env[i], strlen(s->env[i]));
    }
    ARRAY_GROW(e->v, e->n + 1, e->cap);
    e->v[e->n] = NULL;
}

static void set_identity(struct env *e, const struct spawn *s, int i, uint32_t epoch)
{
    env_set_int(e, "RANK", s->rank[i].rank);
    env_set_int(e, "WORLD_SIZE", s->world);
    env_set_int(e, "LOCAL_RANK", s->rank[i].local_rank);
    env_set_int(e, "LOCAL_WORLD_SIZE", s->nranks);
    env_set_int(e, "LOCAL_SIZE", s->nranks);
    env_set_int(e, "NODE_RANK", s->node);
    env_set_int(e, "CROSS_RANK", s->node);
    env_set_int(e, "CROSS_SIZE", s->nodes);
    env_set(e, "MASTER_ADDR", s->master_addr);
    env_set_int(e, "MASTER_PORT", s->master_port);
    env_set(e, "DS_JOB_ID", s->job_id);
    env_set_int(e, "DS_EPOCH", epoch);
}

/* torchrun's names. All ranks have one role; a node is a group. */
static void set_torchrun(struct env *e, const struct spawn *s, int i, const char *error_file)
{
    env_set_int(e, "GROUP_RANK", s->node);
    env_set_int(e, "GROUP_WORLD_SIZE", s->nodes);
    env_set(e, "ROLE_NAME", *s->role ? s->role : "default");
    env_set_int(e, "ROLE_RANK", s->rank[i].rank);
    env_set_int(e, "ROLE_WORLD_SIZE", s->world);
    env_set(e, "TORCHELASTIC_RUN_ID", *s->run_id ? s->run_id : s->job_id);
    env_set_int(e, "TORCHELASTIC_RESTART_COUNT", s->restarts);
    env_set_int(e, "TORCHELASTIC_MAX_RESTARTS", s->max_restarts);
    if (error_file)
        env_set(e, "TORCHELASTIC_ERROR_FILE", error_file);
    if (!env_has(e, "TORCH_NCCL_ASYNC_ERROR_HANDLING"))
        env_set_int(e, "TORCH_NCCL_ASYNC_ERROR_HANDLING", 1);
}

/* Threads: all processors the rank is bound to, or its share of the agent's. */
static int default_threads(const struct spawn *s, int i, int cores)
{
    uint8_t set[TOPO_CPUS];
    int n = 0;

    if (s->rank[i].threads > 0)
        return s->rank[i].threads;
    if (cpus_parse(s->rank[i].cpus, set, (int)sizeof set) == 0)
        for (size_t k = 0; k < sizeof set; k++)
            n += set[k];
    if (!n)
        n = cores / s->nranks;
    return n > 0 ? n : 1;
}

/* The interface the ranks talk over, for those libraries that would otherwise guess. NCCL takes a name for the
 * beginning of one, but for the = in front; UCX gets the RDMA device first, or it would be confined to TCP. */
static void set_network(struct env *e, const struct spawn *s)
{
    if (!env_has(e, "GLOO_SOCKET_IFNAME"))
        env_set(e, "GLOO_SOCKET_IFNAME", s->interface);
    if (!env_has(e, "TP_SOCKET_IFNAME"))
        env_set(e, "TP_SOCKET_IFNAME", s->interface);
    if (!env_has(e, "NCCL_SOCKET_IFNAME"))
        env_put(e, xasprintf("NCCL_SOCKET_IFNAME==%s", s->interface));
    if (!env_has(e, "UCX_NET_DEVICES"))
        env_put(e, xasprintf("UCX_NET_DEVICES=%s%s%s", s->rdma, *s->rdma ? "," : "", s->interface));
}

char **rankenv_make(const struct spawn *s, int i, uint32_t epoch, int agent_fd, const char *error_file,
                    int cores, char *const *base)
{
    struct env e;

    env_init(&e, s, base);
    if (*s->devices)
        env_set(&e, "CUDA_VISIBLE_DEVICES", s->devices);
    set_identity(&e, s, i, epoch);
    set_torchrun(&e, s, i, error_file);
    if (agent_fd >= 0)
        env_set_int(&e, "DS_AGENT_FD", agent_fd);
    if (!env_has(&e, "OMP_NUM_THREADS"))
        env_set_int(&e, "OMP_NUM_THREADS", default_threads(s, i, cores));
    if (s->engine && !env_has(&e, "OMP_WAIT_POLICY") && !env_has(&e, "GOMP_SPINCOUNT"))
        env_set_int(&e, "GOMP_SPINCOUNT", SPIN_COUNT);
    if (*s->interface)
        set_network(&e, s);
    return e.v;
}

char **rankenv_plain(const struct spawn *s, char *const *base)
{
    struct env e;

    env_init(&e, s, base);
    return e.v;
}

void rankenv_free(char **env)
{
    for (int i = 0; env && env[i]; i++)
        free(env[i]);
    free(env);
}
