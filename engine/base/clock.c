/* Time: see clock.h. */
#include "engine/base/clock.h"

#include <time.h>

static int64_t read_ns(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t clock_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_ms(void)
{
    return read_ns(CLOCK_MONOTONIC) / 1000000;
}

double clock_wall(void)
{
    return (double)read_ns(CLOCK_REALTIME) * 1e-9;
}
