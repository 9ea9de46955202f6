/* A world of boots in memory: what the agents give in a job, for tests and for many ranks in one
 * process.
 *
 * Everything but the boots' function pointers and the descriptors lies in one shared anonymous
 * mapping, so processes forked after create are in the same world. Values are kept until the end:
 * keys are never removed and the mapping has a fixed size, which bounds what a test may put (8
 * MiB).
 */
#include "engine/comm/core.h"
#include "engine/base/buf.h"
#include "engine/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HEAP_BYTES ((size_t)8 << 20)
#define TICK_MS 20 /* how often a wait looks at the abort word */

struct entry {
    size_t next; /* offset in heap + 1; 0: end */
    size_t key, value, n;
    int pid, fd;
};

/* In shared memory. */
struct world_shared {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t used, first;
    char heap[HEAP_BYTES];
};

struct world_boot {
    struct boot boot;
    struct boot_world *world;
};

struct boot_world {
    int n;
    struct world_shared *shared;
    struct rank_page *pages; /* [n], shared */
    struct world_boot *rank; /* [n] */
    int *node_of;
    int *fds; /* what putfd duplicated in this process */
    int nfds, fdcap;
    pthread_mutex_t fdlock;
};

static const uint8_t test_key[32] = "a world in memory has no secrets";

static void lock(struct world_shared *s)
{
    if (pthread_mutex_lock(&s->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&s->lock); /* a killed process held it between whole steps */
}

static struct entry *find(struct world_shared *s, const char *key)
{
    for (size_t at = s->first; at;) {
        struct entry *e = (struct entry *)(s->heap + at - 1);

        if (strcmp(s->heap + e->key, key) == 0)
            return e;
        at = e->next;
    }
    return NULL;
}

static size_t take(struct world_shared *s, const void *data, size_t n)
{
    size_t at = s->used;

    memcpy(s->heap + at, data, n);
    s->used += (n + 15) & ~(size_t)15;
    return at;
}

static int add(struct boot_world *w, const char *key, const void *value, size_t n, int fd,
               struct err *err)
{
    struct world_shared *s = w->shared;
    struct entry e = {.n = n, .pid = getpid(), .fd = fd};
    size_t klen = strlen(key) + 1;
    int rc = 0;

    lock(s);
    if (s->used + klen + n + sizeof e + 64 > HEAP_BYTES) {
        rc = err_set(err, ERR_JOB_INTERNAL,
                     "the key space of the world in memory is full at \"%s\"", key);
    } else {
        e.key = take(s, key, klen);
        e.value = take(s, value ? value : "", n);
        e.next = s->first;
        s->first = take(s, &e, sizeof e) + 1;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static struct timespec tick_end(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += TICK_MS * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* The entry, with the lock held; NULL and unlocked on failure. */
static struct entry *await(struct boot *b, const char *key, int64_t deadline_ms, struct err *err)
{
    struct world_shared *s = ((struct world_boot *)b)->world->shared;

    lock(s);
    for (;;) {
        struct entry *e = find(s, key);
        struct timespec t = tick_end();

        if (e)
            return e;
        if (__atomic_load_n(&b->page->abort, __ATOMIC_ACQUIRE))
            err_set(err, ERR_RANK_ABORT, "the wait for \"%s\" was ended by the abort flag", key);
        else if (clock_ms() >= deadline_ms)
            err_set(err, ERR_RANK_TIMEOUT, "nobody put \"%s\" in time", key);
        else if (pthread_cond_timedwait(&s->changed, &s->lock, &t) != EOWNERDEAD)
            continue;
        else {
            pthread_mutex_consistent(&s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        return NULL;
    }
}

static int world_put(struct boot *b, const char *key, const void *value, size_t n, struct err *err)
{
    return add(((struct world_boot *)b)->world, key, value, n, -1, err);
}

static int world_get(struct boot *b, const char *key, void **value, size_t *n, int64_t deadline_ms,
                     struct err *err)
{
    struct world_shared *s = ((struct world_boot *)b)->world->shared;
    struct entry *e = await(b, key, deadline_ms, err);

    if (!e)
        return -1;
    *value = xmalloc(e->n + 1);
    memcpy(*value, s->heap + e->value, e->n);
    ((char *)*value)[e->n] = 0;
    *n = e->n;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static int world_fence(struct boot *b, const char *name, int64_t deadline_ms, struct err *err)
{
    char key[256];

    snprintf(key, sizeof key, "fence/%s/%d", name, b->rank);
    if (world_put(b, key, "", 0, err))
        return -1;
    for (int r = 0; r < b->world; r++) {
        snprintf(key, sizeof key, "fence/%s/%d", name, r);
        if (!await(b, key, deadline_ms, err))
            return -1;
        pthread_mutex_unlock(&((struct world_boot *)b)->world->shared->lock);
    }
    return 0;
}

/* Keys of descriptors are a space of their own in each node. */
static void fd_key(const struct boot *b, const char *key, char out[256])
{
    snprintf(out, 256, "fd/%d/%s", b->node, key);
}

static int world_putfd(struct boot *b, const char *key, int fd, struct err *err)
{
    struct boot_world *w = ((struct world_boot *)b)->world;
    char name[256];
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (copy < 0)
        return err_set(err, ERR_RANK, "cannot duplicate a descriptor for \"%s\": %m", key);
    fd_key(b, key, name);
    pthread_mutex_lock(&w->fdlock);
    ARRAY_GROW(w->fds, w->nfds, w->fdcap);
    w->fds[w->nfds++] = copy;
    pthread_mutex_unlock(&w->fdlock);
    return add(w, name, NULL, 0, copy, err);
}

static int world_getfd(struct boot *b, const char *key, int *fd, int64_t deadline_ms,
                       struct err *err)
{
    struct world_shared *s = ((struct world_boot *)b)->world->shared;
    char name[256], path[64];
    struct entry *e;

    fd_key(b, key, name);
    e = await(b, name, deadline_ms, err);
    if (!e)
        return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", e->pid, e->fd);
    *fd = e->pid == getpid() ? fcntl(e->fd, F_DUPFD_CLOEXEC, 0) : open(path, O_RDWR | O_CLOEXEC);
    pthread_mutex_unlock(&s->lock);
    if (*fd < 0)
        return err_set(err, ERR_RANK_PEER, "cannot open the descriptor \"%s\" of a peer: %m", key);
    return 0;
}

static void world_peer_lost(struct boot *b, int peer, const char *op, uint64_t seq)
{
    char key[64], value[128];

    snprintf(key, sizeof key, "peer_lost/%d", b->rank);
    snprintf(value, sizeof value, "%d %s %llu", peer, op, (unsigned long long)seq);
    world_put(b, key, value, strlen(value), NULL);
}

int boot_is_world(const struct boot *b)
{
    return b->put == world_put;
}

static int shared_init(struct boot_world *w)
{
    size_t pages = (size_t)w->n * sizeof *w->pages;
    char *p = mmap(NULL, sizeof *w->shared + pages, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pthread_mutexattr_t ma;
    pthread_condattr_t ca;

    if (p == MAP_FAILED)
        return -1;
    w->shared = (struct world_shared *)p;
    w->pages = (struct rank_page *)(p + sizeof *w->shared);
    pthread_mutexattr_init(&ma);
    pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&w->shared->lock, &ma);
    pthread_mutexattr_destroy(&ma);
    pthread_condattr_init(&ca);
    pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
    pthread_cond_init(&w->shared->changed, &ca);
    pthread_condattr_destroy(&ca);
    pthread_mutex_init(&w->fdlock, NULL);
    return 0;
}

static void boot_init(struct boot_world *w, int rank, int nodes)
{
    struct boot *b = &w->rank[rank].boot;

    w->rank[rank].world = w;
    *b = (struct boot){
        .rank = rank,
        .world = w->n,
        .node = w->node_of[rank],
        .nodes = nodes,
        .node_of = w->node_of,
        .epoch = 1,
        .page = &w->pages[rank],
        .address = "127.0.0.1",
        .key = test_key,
        .put = world_put,
        .get = world_get,
        .fence = world_fence,
        .putfd = world_putfd,
        .getfd = world_getfd,
        .peer_lost = world_peer_lost,
    };
    b->abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (int r = 0; r < w->n; r++) {
        b->local_world += w->node_of[r] == b->node;
        b->local_rank += r < rank && w->node_of[r] == b->node;
    }
}

struct boot_world *boot_world_create_on(int n, const int *node_of)
{
    struct boot_world *w = xcalloc(1, sizeof *w);
    int nodes = 0;

    w->n = n;
    w->node_of = xcalloc((size_t)n, sizeof *w->node_of);
    for (int r = 0; r < n; r++) {
        w->node_of[r] = node_of[r];
        nodes = node_of[r] >= nodes ? node_of[r] + 1 : nodes;
    }
    w->rank = xcalloc((size_t)n, sizeof *w->rank);
    if (shared_init(w)) {
        free(w->node_of);
        free(w->rank);
        free(w);
        return NULL;
    }
    for (int r = 0; r < n; r++)
        boot_init(w, r, nodes);
    return w;
}

struct boot_world *boot_world_create(int n, int nodes)
{
    int *node_of = xcalloc((size_t)n, sizeof *node_of);
    struct boot_world *w;

    for (int r = 0; r < n; r++)
        node_of[r] = (int)((int64_t)r * nodes / n);
    w = boot_world_create_on(n, node_of);
    free(node_of);
    return w;
}

struct boot *boot_world_rank(struct boot_world *w, int rank)
{
    return &w->rank[rank].boot;
}

void boot_world_abort(struct boot_world *w)
{
    for (int r = 0; r < w->n; r++) {
        struct boot *b = &w->rank[r].boot;

        __atomic_store_n(&b->page->abort, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &b->page->abort, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        if (b->abort_fd >= 0)
            eventfd_write(b->abort_fd, 1);
    }
}

void boot_world_destroy(struct boot_world *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->nfds; i++)
        close(w->fds[i]);
    for (int r = 0; r < w->n; r++)
        if (w->rank[r].boot.abort_fd >= 0)
            close(w->rank[r].boot.abort_fd);
    munmap(w->shared, sizeof *w->shared + (size_t)w->n * sizeof *w->pages);
    pthread_mutex_destroy(&w->fdlock);
    free(w->fds);
    free(w->rank);
    free(w->node_of);
    free(w);
}
