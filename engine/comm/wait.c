/* Waiting in a group: yield for a while, then sleep on the own bell or in epoll.
 *
 * A sleeper sets sleeping, looks at its condition once more, then sleeps; whoever changes something
 * looks at sleeping afterwards. Both sides use sequentially consistent accesses, so one of them
 * sees the other. While it sleeps, a rank also hears its abort word (futex_waitv; where the kernel
 * lacks it, by waking every few milliseconds) and looks after peers whose process is gone.
 */
#include "engine/comm/group.h"
#include "engine/base/clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_NS 50000
#define SLEEP_NS 100000000
#define SLICE_NS 5000000 /* without futex_waitv */

void desc_text(const struct desc *d, char out[160])
{
    int n = snprintf(out, 160, "%s", coll_name(d->op));

    if (d->op != COLL_BARRIER)
        n += snprintf(out + n, (size_t)(160 - n), "(%lld %s%s", (long long)d->count,
                      coll_dtype_name(d->dtype), d->reduce == COLL_MAX ? ", max" : "");
    if (d->op == COLL_BROADCAST)
        n += snprintf(out + n, (size_t)(160 - n), ", root %d", d->root);
    snprintf(out + n, (size_t)(160 - n), "%s #%llu", d->op == COLL_BARRIER ? "" : ")",
             (unsigned long long)d->seq);
}

void group_ring_one(struct group *g, int seat)
{
    struct seat *s = &g->region->seat[seat];

    if (__atomic_load_n(&s->sleeping, __ATOMIC_SEQ_CST)) {
        __atomic_add_fetch(&s->bell, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &s->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

void group_ring(struct group *g)
{
    for (int i = 0; i < g->nlocal; i++)
        if (i != g->seat)
            group_ring_one(g, i);
}

void group_wake(struct core *c)
{
    struct group *g = (struct group *)c;
    struct seat *s = &g->region->seat[g->seat];

    __atomic_add_fetch(&s->bell, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &s->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The first failure of a node is told to its other ranks in the region. */
static void publish(struct group *g, const struct err *e)
{
    struct region *r = g->region;
    uint32_t none = 0;

    if (!__atomic_compare_exchange_n(&r->failed, &none, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return;
    r->fail_code = e->code;
    r->fail_rank = g->core.base.rank;
    memcpy(r->fail_text, e->text, sizeof r->fail_text);
    __atomic_store_n(&r->failed, 2, __ATOMIC_SEQ_CST);
    group_ring(g);
}

static int fail(struct group *g, const struct err *e)
{
    core_fail(&g->core, e);
    publish(g, e);
    net_hang_up(g);
    return -1;
}

int group_fail(struct group *g, enum err_code code, const char *fmt, ...)
{
    struct err e = ERR_INIT;
    va_list ap;

    va_start(ap, fmt);
    err_vset(&e, code, fmt, ap);
    va_end(ap);
    return fail(g, &e);
}

int group_lost(struct group *g, int peer, const struct desc *what, const char *how)
{
    struct boot *b = g->core.boot;
    char text[160];

    desc_text(what, text);
    if (b->peer_lost)
        b->peer_lost(b, g->world[peer], coll_name(what->op), what->seq);
    return group_fail(g, ERR_RANK_PEER, "rank %d is gone while rank %d waited for it in %s: %s",
                      g->world[peer], b->rank, text, how);
}

static int adopt(struct group *g)
{
    struct region *r = g->region;
    struct err e = ERR_INIT;

    err_set(&e, (enum err_code)r->fail_code, "%s", r->fail_text);
    if (e.code == ERR_RANK_ABORT)
        err_set(&e, ERR_RANK_ABORT, "rank %d ended the communication", g->world[r->fail_rank]);
    return fail(g, &e);
}

static int ended(struct group *g, const struct waiting *w)
{
    const struct core *c = &g->core;
    char text[160];

    if (__atomic_load_n(&g->region->failed, __ATOMIC_ACQUIRE) == 2)
        return adopt(g);
    if (!__atomic_load_n(&c->aborted, __ATOMIC_ACQUIRE) &&
        !__atomic_load_n(&c->boot->page->abort, __ATOMIC_ACQUIRE))
        return 0;
    desc_text(&w->what, text);
    return group_fail(g, ERR_RANK_ABORT, "%s of rank %d was ended by the abort flag", text,
                      c->boot->rank);
}

static void page_write(struct group *g, const struct waiting *w, int waits)
{
    struct rank_page *p = g->core.boot->page;

    __atomic_store_n(&p->coll_op, w->what.op, __ATOMIC_RELAXED);
    __atomic_store_n(&p->coll_peer, w->peer < 0 ? UINT32_MAX : (uint32_t)g->world[w->peer],
                     __ATOMIC_RELAXED);
    __atomic_store_n(&p->time_ns, (uint64_t)clock_ns(), __ATOMIC_RELAXED);
    __atomic_store_n(&p->coll_seq, waits ? w->what.seq : 0, __ATOMIC_RELAXED);
}

void wait_begin(struct group *g, struct waiting *w, const struct desc *what, int peer)
{
    *w = (struct waiting){.what = *what, .peer = peer};
    wait_moved(g, w);
    w->checked_ns = w->begin_ns;
}

void wait_moved(struct group *g, struct waiting *w)
{
    w->begin_ns = clock_ns();
    w->deadline_ns = w->begin_ns + g->core.timeout_ms * 1000000;
}

void wait_end(struct group *g, struct waiting *w)
{
    if (w->armed)
        __atomic_store_n(&g->region->seat[g->seat].sleeping, 0, __ATOMIC_SEQ_CST);
    if (w->slow)
        page_write(g, w, 0);
}

static int timed_out(struct group *g, const struct waiting *w)
{
    char text[160], also[160] = "";

    desc_text(&w->what, text);
    if (w->peer >= 0 && g->seat_of[w->peer] >= 0) {
        const struct seat *s = &g->region->seat[g->seat_of[w->peer]];

        snprintf(also, sizeof also, " (which was last seen waiting in %s #%llu)",
                 coll_name(__atomic_load_n(&s->doing_op, __ATOMIC_RELAXED)),
                 (unsigned long long)__atomic_load_n(&s->doing_seq, __ATOMIC_RELAXED));
    }
    if (w->peer < 0)
        return group_fail(g, ERR_RANK_TIMEOUT, "%s of rank %d did not end within %lld ms", text,
                          g->core.boot->rank, (long long)g->core.timeout_ms);
    return group_fail(g, ERR_RANK_TIMEOUT, "%s of rank %d waited %lld ms for rank %d%s", text,
                      g->core.boot->rank, (long long)g->core.timeout_ms, g->world[w->peer], also);
}

void group_see(struct group *g)
{
    for (int i = 0; i < g->nlocal; i++) {
        int pid = __atomic_load_n(&g->region->seat[i].pid, __ATOMIC_RELAXED);

        g->seen[i] = i != g->seat && pid && kill(pid, 0) == 0;
    }
}

/* The agent tells deaths at once; this finds them where no agent does. */
static int look_after_peers(struct group *g, const struct waiting *w)
{
    for (int i = 0; i < g->nlocal; i++) {
        int pid = __atomic_load_n(&g->region->seat[i].pid, __ATOMIC_RELAXED);

        if (g->seen[i] && kill(pid, 0) < 0 && errno == ESRCH)
            return group_lost(g, g->local[i], &w->what, "its process has ended");
    }
    return 0;
}

static void sleep_local(struct group *g, struct waiting *w)
{
    struct seat *s = &g->region->seat[g->seat];
    int64_t until = clock_ns() + SLEEP_NS;
    struct timespec at = {until / 1000000000, until % 1000000000}, slice = {0, SLICE_NS};
    struct futex_waitv v[2] = {
        {.val = w->bell, .uaddr = (uintptr_t)&s->bell, .flags = FUTEX_32},
        {.val = 0, .uaddr = (uintptr_t)&g->core.boot->page->abort, .flags = FUTEX_32},
    };

    if (syscall(SYS_futex_waitv, v, 2, 0, &at, CLOCK_MONOTONIC) < 0 && errno == ENOSYS)
        syscall(SYS_futex, &s->bell, FUTEX_WAIT, w->bell, &slice, NULL, 0);
}

int wait_idle(struct group *g, struct waiting *w, int on)
{
    struct seat *s = &g->region->seat[g->seat];
    struct epoll_event ev[16];
    int64_t now = clock_ns();

    if (ended(g, w))
        return -1;
    if (now - w->begin_ns < SPIN_NS) {
        sched_yield();
        return 0;
    }
    if (!w->slow) {
        w->slow = 1;
        page_write(g, w, 1);
        __atomic_store_n(&s->doing_op, w->what.op, __ATOMIC_RELAXED);
        __atomic_store_n(&s->doing_seq, w->what.seq, __ATOMIC_RELAXED);
    }
    if (now > w->deadline_ns)
        return timed_out(g, w);
    if (now - w->checked_ns > SLEEP_NS) {
        w->checked_ns = now;
        if (!g->thread && look_after_peers(g, w))
            return -1;
    }
    if (on & WAIT_NET) {
        epoll_wait(g->epoll, ev, 16, on & WAIT_LOCAL ? 1 : 20);
    } else if (!w->armed) { /* the caller looks at its condition once more before the sleep */
        __atomic_store_n(&s->sleeping, 1, __ATOMIC_SEQ_CST);
        w->bell = __atomic_load_n(&s->bell, __ATOMIC_SEQ_CST);
        w->armed = 1;
    } else {
        sleep_local(g, w);
        w->bell = __atomic_load_n(&s->bell, __ATOMIC_SEQ_CST);
    }
    return 0;
}

/* The seat of a rank that has not come yet, -1 when all have. */
static int missing(const struct group *g)
{
    for (int i = 0; i < g->nlocal; i++)
        if (__atomic_load_n(&g->region->seat[i].arrived, __ATOMIC_SEQ_CST) < g->arrived)
            return i;
    return -1;
}

int group_sync(struct group *g)
{
    struct waiting w;
    int at, rc = 0;

    g->arrived++;
    __atomic_store_n(&g->region->seat[g->seat].arrived, g->arrived, __ATOMIC_SEQ_CST);
    group_ring(g);
    if (missing(g) < 0)
        return 0;
    wait_begin(g, &w, &g->desc, -1);
    while ((at = missing(g)) >= 0 && rc == 0) {
        int moved = pairs_progress(g);

        w.peer = g->local[at];
        if (moved < 0)
            rc = -1;
        else if (moved)
            wait_moved(g, &w);
        else
            rc = wait_idle(g, &w, WAIT_LOCAL | pairs_pending(g));
    }
    wait_end(g, &w);
    return rc;
}

int group_mismatch(struct group *g, int peer, const struct desc *theirs)
{
    char a[160], b[160];

    desc_text(&g->desc, a);
    desc_text(theirs, b);
    return group_fail(g, ERR_JOB_INTERNAL,
                      "ranks disagree on the next collective: rank %d calls %s, rank %d calls %s%s",
                      g->core.boot->rank, a, g->world[peer], b,
                      strcmp(a, b) ? "" : " with other counts");
}

int group_drive(struct group *g, int (*step)(struct group *g, int *moved, int *peer))
{
    struct waiting w;
    int rc, moved, peer;

    wait_begin(g, &w, &g->desc, -1);
    while ((rc = step(g, &moved, &peer)) == 0 && peer >= 0) {
        w.peer = peer;
        if (moved)
            wait_moved(g, &w);
        else if ((rc = wait_idle(g, &w, WAIT_NET | pairs_pending(g))))
            break;
    }
    wait_end(g, &w);
    return rc;
}
