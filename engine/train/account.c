/* What a rank spends: time by phase, bytes by group and operation. See train.h.
 *
 * Phases follow each other without a gap on the thread that runs the step, so a step costs a few looks at the
 * clock. What the compute stream waits for between two layers is taken out of forward and backward.
 */
#include "engine/train/train.h"

#include "engine/base/clock.h"

const char *const time_name[TIMES] = {"data",   "forward", "backward", "wait", "reduce",
                                      "update", "other",   "eval",     "save"};
const char *const group_name[GROUPS] = {"data", "near"};

void train_phase(struct train *t, enum rank_phase p)
{
    struct rank_page *page = t->boot->page;
    int64_t now = clock_ns(), ns = now - t->phase_ns, waited = t->zero->wait_ns - t->waited_ns;

    if (t->phase == PHASE_FORWARD || t->phase == PHASE_BACKWARD) {
        t->spent.wait_ns += waited;
        ns -= waited;
    }
    t->spent.ns[t->phase] += ns;
    t->phase = p;
    t->phase_ns = now;
    t->waited_ns = t->zero->wait_ns;
    if (!page)
        return;
    __atomic_store_n(&page->phase, (uint32_t)p, __ATOMIC_RELAXED);
    __atomic_store_n(&page->step, (uint64_t)t->step, __ATOMIC_RELAXED);
    __atomic_store_n(&page->time_ns, (uint64_t)now, __ATOMIC_RELAXED);
}

static void read_traffic(const struct train *t, struct comm_counters c[GROUPS])
{
    c[GROUP_NEAR] = (struct comm_counters){0};
    t->comm->ops->counters(t->comm, &c[GROUP_DATA]);
    if (t->zero->near)
        t->zero->near->ops->counters(t->zero->near, &c[GROUP_NEAR]);
}

/* to += sign x by; accounts and counters are nothing but numbers of 64 bits. */
static void add(void *to, const void *by, size_t bytes, int sign)
{
    int64_t *a = to;
    const int64_t *b = by;

    for (size_t i = 0; i < bytes / sizeof *a; i++)
        a[i] += sign * b[i];
}

void train_account_begin(struct train *t)
{
    read_traffic(t, t->traffic);
}

void train_account_end(struct train *t, int64_t begin_ns)
{
    struct comm_counters now[GROUPS];

    train_phase(t, PHASE_START);
    t->step_ns = t->phase_ns - begin_ns;
    t->spent.steps++;
    t->spent.step_ns += t->step_ns;
    read_traffic(t, now);
    add(now, t->traffic, sizeof now, -1);
    add(t->spent.traffic, now, sizeof now, 1);
    t->last = t->spent;
    add(&t->last, &t->mark, sizeof t->last, -1);
    t->mark = t->spent;
}

void account_ms(const struct account *a, double ms[TIMES])
{
    static const enum rank_phase of[TIMES] = {
        [TIME_DATA] = PHASE_DATA, [TIME_FORWARD] = PHASE_FORWARD, [TIME_BACKWARD] = PHASE_BACKWARD,
        [TIME_REDUCE] = PHASE_REDUCE, [TIME_UPDATE] = PHASE_UPDATE, [TIME_EVAL] = PHASE_EVAL,
        [TIME_SAVE] = PHASE_SAVE};
    int64_t other = a->step_ns;

    for (int i = 0; i < TIMES; i++) {
        int64_t ns = i == TIME_WAIT ? a->wait_ns : i == TIME_OTHER ? other : a->ns[of[i]];

        other -= ns;
        ms[i] = a->steps ? (double)ns * 1e-6 / (double)a->steps : 0;
    }
}

void account_bytes(const struct account *a, enum train_group group, int op, double bytes[2])
{
    uint64_t sent = 0, received = 0;

    for (int class = 0; class < CLASSES; class++) {
        sent += a->traffic[group].sent[op][class];
        received += a->traffic[group].received[op][class];
    }
    bytes[0] = a->steps ? (double)sent / (double)a->steps : 0;
    bytes[1] = a->steps ? (double)received / (double)a->steps : 0;
}
