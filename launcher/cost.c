/* What a launch cost the front end: said of a simulation, whose purpose it is, and of any job at log level debug. */
#include "launcher/front.h"

#include <sys/resource.h>

static double seconds(const struct timeval *t)
{
    return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

/* Four bins to a doubling: exact enough for a percentile, and no memory that grows with the job. */
static int bin_of(uint64_t us)
{
    int top = us < 4 ? 2 : 63 - __builtin_clzll(us),
        bin = us < 4 ? (int)us : 4 * (top - 1) + (int)(us >> (top - 2) & 3);

    return bin < PONG_BINS ? bin : PONG_BINS - 1;
}

/* The least time of the bin above. */
static double bin_end_ms(int bin)
{
    int next = bin + 1;

    return (double)(next < 4 ? (uint64_t)next : (uint64_t)(4 + next % 4) << (next / 4 - 1)) / 1000;
}

void front_count_pong(struct front *f, int64_t ns)
{
    f->pong[bin_of(ns > 0 ? (uint64_t)ns / 1000 : 0)]++;
}

static void say_pongs(const struct front *f, struct buf *b)
{
    uint64_t all = 0, sum = 0;
    int i, half = -1, most = -1, last = 0;

    for (i = 0; i < PONG_BINS; i++)
        all += f->pong[i];
    for (i = 0; i < PONG_BINS; i++) {
        sum += f->pong[i];
        if (half < 0 && 2 * sum >= all)
            half = i;
        if (most < 0 && 100 * sum >= 99 * all)
            most = i;
        last = f->pong[i] ? i : last;
    }
    if (all)
        buf_addf(b, "; pongs: %llu, half within %.1f ms, 99 of 100 within %.1f ms, all within %.1f ms",
                 (unsigned long long)all, bin_end_ms(half), bin_end_ms(most), bin_end_ms(last));
}

void front_say_cost(struct front *f)
{
    static const struct {
        enum job_state state;
        const char *name;
    } phase[] = {{JOB_CONNECTING, "connected"}, {JOB_CHECKING, "checked"}, {JOB_SPAWNING, "started"},
                 {JOB_RUNNING, "ran"},          {JOB_REAPING, "torn down"}};
    struct rusage use;
    struct buf b = BUF_INIT;
    size_t i;

    getrusage(RUSAGE_SELF, &use);
    buf_addf(&b, "%d nodes, %d ranks:", f->place.nodes, f->place.world);
    for (i = 0; i < sizeof phase / sizeof phase[0]; i++)
        buf_addf(&b, " %s in %.2f s%s", phase[i].name, (double)f->spent_ms[phase[i].state] / 1000,
                 phase[i].state == JOB_REAPING ? ";" : ",");
    buf_addf(&b, " front end: %.2f s of processor time, %.1f MB; %.1f MB to the agents, %.1f MB from them",
             seconds(&use.ru_utime) + seconds(&use.ru_stime), (double)use.ru_maxrss * 1024 / 1e6,
             (double)f->bytes_to / 1e6, (double)f->bytes_from / 1e6);
    say_pongs(f, &b);
    front_say(f, f->ops == &spawner_sim ? LOG_INFO : LOG_DEBUG, "%s", buf_str(&b));
    buf_clear(&b);
}
