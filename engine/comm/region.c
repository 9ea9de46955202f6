/* The memory that ranks of one node share: the region where they meet, and the segments they
 * allocate.
 *
 * Region: seats, mail for every ordered pair, then staging: per rank NET_SLOTS slots to give and as
 * many to get, per pair two slots. Host: a memfd made by the first rank of the node. Thread: a
 * plain mapping, freed by the last. Pages that no call needs are never touched.
 */
#include "engine/comm/group.h"
#include "engine/base/buf.h"
#include "engine/base/clock.h"
#include "engine/base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t head_bytes(int ranks)
{
    size_t n = (size_t)ranks;
    size_t bytes = sizeof(struct region) + n * sizeof(struct seat) + n * n * sizeof(struct mail);

    return (bytes + 4095) & ~(size_t)4095;
}

size_t region_bytes(int ranks)
{
    size_t n = (size_t)ranks;

    return head_bytes(ranks) + 2 * n * NET_SLOTS * SLOT_BYTES + 2 * n * n * PAIR_BYTES;
}

size_t region_part(const struct group *g)
{
    size_t n = (size_t)g->nlocal, slots = g->nruns > 1 ? NET_SLOTS : 1, head = head_bytes(g->nlocal) / n;

    if (g->thread || g->nlocal == 1) /* all memory is read in place */
        return head;
    return head + 2 * slots * SLOT_BYTES + 2 * n * PAIR_BYTES;
}

struct mail *region_mail(struct group *g, int from, int to)
{
    struct mail *all = (struct mail *)(g->region->seat + g->nlocal);

    return &all[from * g->nlocal + to];
}

char *region_slot(struct group *g, int seat, int out)
{
    return g->staging + (size_t)(2 * seat + out) * NET_SLOTS * SLOT_BYTES;
}

char *region_pair_slot(struct group *g, int from, int to)
{
    char *pairs = g->staging + (size_t)(2 * g->nlocal) * NET_SLOTS * SLOT_BYTES;

    return pairs + (size_t)(from * g->nlocal + to) * 2 * PAIR_BYTES;
}

/* now: the pages are there at once (and a machine that is full says so here, not by SIGBUS later).
 */
static void *map(int fd, size_t bytes, int now)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   (fd < 0 ? MAP_ANONYMOUS | MAP_NORESERVE : 0) | MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return NULL;
    if (now) {
        madvise(p, bytes, MADV_HUGEPAGE); /* where the system allows it for shared memory */
        if (madvise(p, bytes, MADV_POPULATE_WRITE) && errno != EINVAL) {
            munmap(p, bytes);
            return NULL;
        }
    }
    return p;
}

/* A memfd of this rank's, given to the peers of the node under key; mapped. */
static void *make_shared(struct group *g, const char *key, size_t bytes, int now, struct err *err)
{
    int fd = memfd_create("ds-comm", MFD_CLOEXEC);
    void *p = NULL;

    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        p = map(fd, bytes, now);
    if (!p)
        err_set(err, ERR_RANK, "cannot make %zu bytes of shared memory: %m", bytes);
    else if (g->core.boot->putfd(g->core.boot, key, fd, err)) {
        munmap(p, bytes);
        p = NULL;
    }
    if (fd >= 0)
        close(fd);
    return p;
}

static void *get_shared(struct group *g, const char *key, size_t bytes, int now, struct err *err)
{
    struct boot *b = g->core.boot;
    void *p;
    int fd;

    if (b->getfd(b, key, &fd, clock_ms() + g->core.timeout_ms, err))
        return NULL;
    p = map(fd, bytes, now);
    if (!p)
        err_set(err, ERR_RANK, "cannot map %zu bytes of a peer's shared memory: %m", bytes);
    close(fd);
    return p;
}

static struct region *thread_region(struct group *g, const char *key, size_t bytes, struct err *err)
{
    struct boot *b = g->core.boot;
    struct region *r = NULL, **got;
    size_t n;

    if (g->seat == 0) {
        r = map(-1, bytes, 0);
        if (!r)
            err_set(err, ERR_RANK, "cannot map %zu bytes of memory: %m", bytes);
        else if (b->put(b, key, &r, sizeof r, err)) {
            munmap(r, bytes);
            r = NULL;
        }
        return r;
    }
    if (b->get(b, key, (void **)&got, &n, clock_ms() + g->core.timeout_ms, err))
        return NULL;
    r = *got;
    free(got);
    return r;
}

int region_open(struct group *g, struct err *err)
{
    size_t bytes = region_bytes(g->nlocal);
    char key[256];

    snprintf(key, sizeof key, "%s/region/%d", g->id, g->local[0]);
    if (g->thread)
        g->region = thread_region(g, key, bytes, err);
    else if (g->nlocal == 1)
        g->region = map(-1, bytes, 0);
    else if (g->seat == 0)
        g->region = make_shared(g, key, bytes, 0, err);
    else
        g->region = get_shared(g, key, bytes, 0, err);
    if (!g->region)
        return err && err->code ? -1 : err_set(err, ERR_RANK, "cannot map the shared region: %m");
    __atomic_add_fetch(&g->region->users, 1, __ATOMIC_ACQ_REL);
    __atomic_store_n(&g->region->seat[g->seat].pid, g->thread ? 0 : getpid(), __ATOMIC_RELAXED);
    g->staging = (char *)g->region + head_bytes(g->nlocal);
    return 0;
}

void region_close(struct group *g)
{
    if (!g->region)
        return;
    if (!g->thread || __atomic_sub_fetch(&g->region->users, 1, __ATOMIC_ACQ_REL) == 0)
        munmap(g->region, region_bytes(g->nlocal));
    g->region = NULL;
}

struct segments *segments_create(int world, int rank, struct device *dev)
{
    struct segments *s = xcalloc(1, sizeof *s);

    *s = (struct segments){.users = 1, .world = world, .rank = rank, .device = dev};
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static void segment_clear(struct segments *s, struct segment *seg)
{
    for (int r = 0; r < s->world; r++)
        if (seg->private)
            s->device->ops->free(s->device, seg->base[r]);
        else if (seg->base[r])
            munmap(seg->base[r], seg->bytes);
    if (!seg->private)
        device_count(s->device, seg->class, -(int64_t)seg->bytes);
    free(seg->base);
}

void segments_release(struct segments *s, const struct group *g)
{
    int users, kept = 0;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n; i++) {
        if (s->segment[i].owner == g)
            segment_clear(s, &s->segment[i]);
        else
            s->segment[kept++] = s->segment[i];
    }
    s->n = kept;
    users = --s->users;
    pthread_mutex_unlock(&s->lock);
    if (users)
        return;
    free(s->segment);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Own memory first, then everyone's: ranks come here in the same order. */
static int segment_map(struct group *g, struct segment *seg, struct err *err)
{
    char key[256];

    snprintf(key, sizeof key, "%s/segment/%d", g->id, g->allocs);
    seg->id = hash64(key, strlen(key));
    for (int i = 0; i < g->nlocal; i++) {
        int at = (g->seat + i) % g->nlocal, rank = g->local[at];
        char **base = &seg->base[g->world[rank]];

        snprintf(key, sizeof key, "%s/segment/%d/%d", g->id, g->allocs, rank);
        *base = i == 0 ? make_shared(g, key, seg->bytes, 1, err)
                       : get_shared(g, key, seg->bytes, 1, err);
        if (!*base)
            return -1;
    }
    return 0;
}

void *group_alloc(struct comm *comm, size_t bytes, enum mem_class class, struct err *err)
{
    struct group *g = (struct group *)comm;
    struct segments *s = g->segments;
    struct segment seg = {.owner = g, .bytes = (bytes + 4095) & ~(size_t)4095, .class = class};
    int rc;

    if (!seg.bytes)
        seg.bytes = 4096;
    seg.base = xcalloc((size_t)s->world, sizeof *seg.base);
    g->allocs++;
    seg.private = g->thread || g->nlocal == 1;
    if (seg.private) {
        seg.base[s->rank] = s->device->ops->alloc(s->device, bytes, class, err);
        rc = seg.base[s->rank] ? 0 : -1;
    } else {
        device_count(s->device, class, (int64_t)seg.bytes);
        rc = segment_map(g, &seg, err);
    }
    if (rc) {
        segment_clear(s, &seg);
        return NULL;
    }
    pthread_mutex_lock(&s->lock);
    ARRAY_GROW(s->segment, s->n, s->cap);
    s->segment[s->n++] = seg;
    pthread_mutex_unlock(&s->lock);
    return seg.base[s->rank];
}

struct ref ref_of(struct group *g, const void *p, size_t bytes)
{
    struct segments *s = g->segments;
    struct ref r = {REF_STAGED, 0, 0};

    if (!p || !bytes)
        return (struct ref){REF_NONE, 0, 0};
    if (g->thread || g->nlocal == 1)
        return (struct ref){REF_POINTER, 0, (uintptr_t)p};
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n; i++) {
        uintptr_t base = (uintptr_t)s->segment[i].base[s->rank], at = (uintptr_t)p;

        if (at >= base && at + bytes <= base + s->segment[i].bytes)
            r = (struct ref){REF_SEGMENT, s->segment[i].id, at - base};
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

char *ref_at(struct group *g, struct ref r, int rank)
{
    struct segments *s = g->segments;
    char *base = NULL;

    if (r.kind == REF_POINTER)
        return (char *)(uintptr_t)r.at;
    if (r.kind != REF_SEGMENT)
        return NULL;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n && !base; i++)
        if (s->segment[i].id == r.segment)
            base = s->segment[i].base[g->world[rank]];
    pthread_mutex_unlock(&s->lock);
    return base ? base + r.at : NULL;
}
