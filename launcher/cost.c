/* What a launch cost the front end: said of a simulation, whose purpose it is, and of any job at log level debug. */
#include "launcher/front.h"

#include <sys/resource.h>

static double seconds(const struct timeval *t)
{
    return (double)t->tv_sec + (double)t->tv_usec / 1e6;
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
    front_say(f, f->ops == &spawner_sim ? LOG_INFO : LOG_DEBUG, "%s", buf_str(&b));
    buf_clear(&b);
}
