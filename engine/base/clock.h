/* Time: monotonic for waits and durations, wall for what a person reads. */
#ifndef DS_BASE_CLOCK_H
#define DS_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_ns(void);   /* CLOCK_MONOTONIC */
int64_t clock_ms(void);   /* CLOCK_MONOTONIC */
double clock_wall(void);  /* seconds since 1970, CLOCK_REALTIME */

#endif
