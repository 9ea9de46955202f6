/* The key space of an epoch: see kv.h. Keys lie in one hash table with chains; an entry exists from the first
 * put or get of its key. Fences are few and live in a list.
 *
 * Invariants: an entry with a value has no waiters; bytes is what all of it takes, book-keeping included (as glibc's
 * malloc has it: an estimate, rounded up), and never beyond KV_TOTAL_BYTES, whatever agents send. */
#include "launcher/kv.h"

#include "engine/base/boot.h"
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
    size_t *answered; /* [nodes] bytes of values that each was sent */
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
    kv->answered = xcalloc((size_t)nodes, sizeof *kv->answered);
    return kv;
}

static void entry_free(struct entry *e)
{
    free(e->key);
    free(e->value);
    free(e->waits);
    free(e);
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
            entry_free(e);
        }
    while ((f = kv->fences)) {
        kv->fences = f->next;
        fence_free(f);
    }
    free(kv->slot);
    free(kv->answered);
    free(kv);
}

/* What malloc takes for n bytes: a head, and whole units of 16, two at least. */
static size_t block(size_t n)
{
    size_t all = (n + 8 + 15) & ~(size_t)15;

    return all < 32 ? 32 : all;
}

/* With its part of the table, which is at most half empty. */
static size_t entry_bytes(const char *key)
{
    return block(sizeof(struct entry)) + block(strlen(key) + 1) + 2 * sizeof(struct entry *);
}

/* The array (ARRAY_GROW) begins with 8 and doubles. */
static size_t wait_bytes(int n)
{
    return n ? block((n < 4 ? 8 : 2 * (size_t)n) * sizeof(int)) : 0;
}

/* So much more is about to be kept. */
static int take_room(struct kv *kv, size_t n, struct err *err)
{
    if (n > KV_TOTAL_BYTES - kv->bytes)
        return err_set(err, ERR_JOB, "the ranks put more than %u MiB into the key space", KV_TOTAL_BYTES >> 20);
    kv->bytes += n;
    return 0;
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

size_t kv_bytes(const struct kv *kv)
{
    return kv->bytes;
}

/* The entry of key, made when there is none. NULL: the key space is full. */
static struct entry *entry_of(struct kv *kv, const char *key, struct err *err)
{
    struct entry *e;

    for (e = kv->slot[hash(key) & (kv->nslots - 1)]; e; e = e->next)
        if (!strcmp(e->key, key))
            return e;
    if (take_room(kv, entry_bytes(key), err))
        return NULL;
    if (kv->used++ >= kv->nslots)
        grow(kv);
    e = xcalloc(1, sizeof *e);
    e->key = xstrdup(key);
    e->next = kv->slot[hash(key) & (kv->nslots - 1)];
    kv->slot[hash(key) & (kv->nslots - 1)] = e;
    return e;
}

/* Takes it out: its value was got, and no one else will ask. */
static void forget(struct kv *kv, struct entry *e)
{
    struct entry **p = &kv->slot[hash(e->key) & (kv->nslots - 1)];

    while (*p != e)
        p = &(*p)->next;
    *p = e->next;
    kv->bytes -= entry_bytes(e->key) + block(e->n + 1);
    kv->used--;
    entry_free(e);
}

static void answer(struct kv *kv, int node, const struct entry *e)
{
    if (!boot_is_once(e->key))
        kv->answered[node] += sizeof *e + strlen(e->key) + e->n;
    kv->out.value(kv->ctx, node, e->key, e->value, e->n);
}

static void answer_waiters(struct kv *kv, struct entry *e)
{
    int *waits = e->waits, n = e->nwaits, i;

    e->waits = NULL;
    e->nwaits = e->waits_cap = 0;
    kv->bytes -= wait_bytes(n);
    for (i = 0; i < n; i++)
        answer(kv, waits[i], e);
    free(waits);
    if (n && boot_is_once(e->key))
        forget(kv, e);
}

int kv_put(struct kv *kv, const char *key, const void *value, size_t n, struct err *err)
{
    struct entry *e = entry_of(kv, key, err);

    if (!e)
        return -1;
    if (n > KV_VALUE_BYTES)
        return err_set(err, ERR_JOB, "the value of key %s has %zu bytes; the key space takes %u at most", key, n,
                       KV_VALUE_BYTES);
    if (e->value) {
        if (e->n == n && !memcmp(e->value, value, n))
            return 0;
        return err_set(err, ERR_JOB, "key %s was put twice with different values", key);
    }
    if (take_room(kv, block(n + 1), err))
        return -1;
    e->value = xmalloc(n + 1);
    if (n)
        memcpy(e->value, value, n);
    e->n = n;
    answer_waiters(kv, e);
    return 0;
}

int kv_get(struct kv *kv, int node, const char *key, struct err *err)
{
    struct entry *e = entry_of(kv, key, err);
    int i;

    if (!e)
        return -1;
    if (e->value && kv->answered[node] > KV_TOTAL_BYTES)
        return err_set(err, ERR_JOB, "node %d asks for more than the whole key space holds", node);
    if (e->value) {
        answer(kv, node, e);
        if (boot_is_once(key))
            forget(kv, e);
        return 0;
    }
    for (i = 0; i < e->nwaits; i++)
        if (e->waits[i] == node)
            return 0;
    if (take_room(kv, wait_bytes(e->nwaits + 1) - wait_bytes(e->nwaits), err))
        return -1;
    ARRAY_GROW(e->waits, e->nwaits, e->waits_cap);
    e->waits[e->nwaits++] = node;
    return 0;
}

static size_t fence_bytes(const struct kv *kv, const char *name)
{
    return block(sizeof(struct fence)) + block(strlen(name) + 1) + block((size_t)kv->nodes);
}

static void fence_done(struct kv *kv, struct fence **at)
{
    struct fence *f = *at;
    int m;

    *at = f->next;
    kv->bytes -= fence_bytes(kv, f->name);
    for (m = 0; m < kv->nodes; m++)
        if (f->arrived[m])
            kv->out.fenced(kv->ctx, m, f->name);
    fence_free(f);
}

int kv_fence(struct kv *kv, int node, const char *name, int count, struct err *err)
{
    struct fence **at = &kv->fences, *f;

    if (count < 1 || count > kv->world)
        return err_set(err, ERR_JOB, "%d ranks of node %d arrived at fence %s of a world of %d", count, node, name,
                       kv->world);
    while (*at && strcmp((*at)->name, name))
        at = &(*at)->next;
    if (!*at) {
        if (take_room(kv, fence_bytes(kv, name), err))
            return -1;
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
