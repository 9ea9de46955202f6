/* The key space of an epoch: see kv.h. Keys lie in one hash table with chains; an entry exists from the first
 * put or get of its key. Invariant: an entry with a value has no waiters. Fences are few and live in a list. */
#include "launcher/kv.h"

#include "engine/base/buf.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *next;
    char *key, *value; /* value NULL: only waited for */
    size_t n;
    int *waits; /* nodes that asked, each once; a node's agent asks once, so the list stays short to search */
    int nwaits, waits_cap;
};

struct fence {
    struct fence *next;
    char *name;
    int count;
    uint8_t *arrived; /* [nodes] */
};

struct kv {
    int nodes, world;
    struct kv_out out;
    void *ctx;
    struct entry **slot;
    size_t nslots, used;
    size_t bytes;
    struct fence *fences;
};

static size_t hash(const char *s)
{
    size_t h = 1469598103934665603u;

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

struct kv *kv_create(int nodes, int world, const struct kv_out *out, void *ctx)
{
    struct kv *kv = xcalloc(1, sizeof *kv);

    kv->nodes = nodes;
    kv->world = world;
    kv->out = *out;
    kv->ctx = ctx;
    kv->nslots = 64;
    kv->slot = xcalloc(kv->nslots, sizeof *kv->slot);
    return kv;
}

static void fence_free(struct fence *f)
{
    free(f->name);
    free(f->arrived);
    free(f);
}

void kv_destroy(struct kv *kv)
{
    struct entry *e;
    struct fence *f;
    size_t i;

    if (!kv)
        return;
    for (i = 0; i < kv->nslots; i++)
        while ((e = kv->slot[i])) {
            kv->slot[i] = e->next;
            free(e->key);
            free(e->value);
            free(e->waits);
            free(e);
        }
    while ((f = kv->fences)) {
        kv->fences = f->next;
        fence_free(f);
    }
    free(kv->slot);
    free(kv);
}

static void grow(struct kv *kv)
{
    size_t i, n = kv->nslots * 2;
    struct entry **slot = xcalloc(n, sizeof *slot), *e;

    for (i = 0; i < kv->nslots; i++)
        while ((e = kv->slot[i])) {
            kv->slot[i] = e->next;
            e->next = slot[hash(e->key) & (n - 1)];
            slot[hash(e->key) & (n - 1)] = e;
        }
    free(kv->slot);
    kv->slot = slot;
    kv->nslots = n;
}

/* The entry of key, made when there is none. NULL: the key space is full. */
static struct entry *entry_of(struct kv *kv, const char *key, struct err *err)
{
    struct entry *e;

    for (e = kv->slot[hash(key) & (kv->nslots - 1)]; e; e = e->next)
        if (!strcmp(e->key, key))
            return e;
    if (kv->bytes + strlen(key) > KV_TOTAL_BYTES) {
        err_set(err, ERR_JOB, "the ranks put more than %u MiB into the key space", KV_TOTAL_BYTES >> 20);
        return NULL;
    }
    if (kv->used++ >= kv->nslots)
        grow(kv);
    e = xcalloc(1, sizeof *e);
    e->key = xstrdup(key);
    e->next = kv->slot[hash(key) & (kv->nslots - 1)];
    kv->slot[hash(key) & (kv->nslots - 1)] = e;
    kv->bytes += strlen(key);
    return e;
}

static void answer_waiters(struct kv *kv, struct entry *e)
{
    int *waits = e->waits, n = e->nwaits, i;

    e->waits = NULL;
    e->nwaits = e->waits_cap = 0;
    for (i = 0; i < n; i++)
        kv->out.value(kv->ctx, waits[i], e->key, e->value, e->n);
    free(waits);
}

int kv_put(struct kv *kv, const char *key, const void *value, size_t n, struct err *err)
{
    struct entry *e = entry_of(kv, key, err);

    if (!e)
        return -1;
    if (n > KV_VALUE_BYTES || kv->bytes + n > KV_TOTAL_BYTES)
        return err_set(err, ERR_JOB, "the value of key %s has %zu bytes; the key space takes %u each and "
                       "%u MiB together", key, n, KV_VALUE_BYTES, KV_TOTAL_BYTES >> 20);
    if (e->value) {
        if (e->n == n && !memcmp(e->value, value, n))
            return 0;
        return err_set(err, ERR_JOB, "key %s was put twice with different values", key);
    }
    e->value = xmalloc(n + 1);
    if (n)
        memcpy(e->value, value, n);
    e->n = n;
    kv->bytes += n;
    answer_waiters(kv, e);
    return 0;
}

int kv_get(struct kv *kv, int node, const char *key, struct err *err)
{
    struct entry *e = entry_of(kv, key, err);
    int i;

    if (!e)
        return -1;
    if (e->value) {
        kv->out.value(kv->ctx, node, e->key, e->value, e->n);
        return 0;
    }
    for (i = 0; i < e->nwaits; i++)
        if (e->waits[i] == node)
            return 0;
    ARRAY_GROW(e->waits, e->nwaits, e->waits_cap);
    e->waits[e->nwaits++] = node;
    return 0;
}

static void fence_done(struct kv *kv, struct fence **at)
{
    struct fence *f = *at;
    int m;

    *at = f->next;
    for (m = 0; m < kv->nodes; m++)
        if (f->arrived[m])
            kv->out.fenced(kv->ctx, m, f->name);
    fence_free(f);
}

int kv_fence(struct kv *kv, int node, const char *name, int count, struct err *err)
{
    struct fence **at = &kv->fences, *f;

    while (*at && strcmp((*at)->name, name))
        at = &(*at)->next;
    if (!*at) {
        *at = xcalloc(1, sizeof **at);
        (*at)->name = xstrdup(name);
        (*at)->arrived = xcalloc((size_t)kv->nodes, 1);
    }
    f = *at;
    if (f->arrived[node])
        return err_set(err, ERR_JOB, "node %d arrived twice at fence %s", node, name);
    f->arrived[node] = 1;
    f->count += count;
    if (f->count > kv->world)
        return err_set(err, ERR_JOB, "%d ranks arrived at fence %s of a world of %d", f->count, name,
                       kv->world);
    if (f->count == kv->world)
        fence_done(kv, at);
    return 0;
}

void kv_waiting(const struct kv *kv, struct buf *out)
{
    const struct entry *e;
    const struct fence *f;
    size_t i;
    int k;

    for (i = 0; i < kv->nslots; i++)
        for (e = kv->slot[i]; e; e = e->next)
            for (k = 0; k < e->nwaits; k++)
                buf_addf(out, "key %s (node %d)\n", e->key, e->waits[k]);
    for (f = kv->fences; f; f = f->next)
        buf_addf(out, "fence %s (%d of %d ranks there)\n", f->name, f->count, kv->world);
}
