/* torchrun's choice of streams: see torchlog.h. */
#include "launcher/torchlog.h"

#include "launcher/spawn.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LOCAL 4096

/* The next LOCAL_RANK:WHICH at *p, or -1. */
static int item(const char **p, int *which)
{
    char *end;
    long rank;

    if (**p < '0' || **p > '9')
        return -1;
    rank = strtol(*p, &end, 10);
    if (rank >= MAX_LOCAL || *end != ':' || end[1] < '0' || end[1] > '3' || (end[2] && end[2] != ','))
        return -1;
    *which = end[1] - '0';
    *p = end + 2;
    if (**p == ',' && !*++*p)
        return -1;
    return (int)rank;
}

static int whole(const char *spec)
{
    return spec[0] >= '0' && spec[0] <= '3' && !spec[1];
}

int torchlog_which_check(const char *spec)
{
    int which;

    if (whole(spec))
        return 0;
    if (!*spec)
        return -1;
    while (*spec)
        if (item(&spec, &which) < 0)
            return -1;
    return 0;
}

int torchlog_which(const char *spec, int local_rank)
{
    int which, rank;

    if (!spec)
        return 0;
    if (whole(spec))
        return *spec - '0';
    while (*spec && (rank = item(&spec, &which)) >= 0)
        if (rank == local_rank)
            return which;
    return 0;
}

int torchlog_filter_check(const char *list)
{
    uint8_t set[MAX_LOCAL];

    return *list ? cpus_parse(list, set, MAX_LOCAL) : -1;
}

int torchlog_filter(const char *list, int local_rank)
{
    uint8_t set[MAX_LOCAL];

    return !list || (!cpus_parse(list, set, MAX_LOCAL) && local_rank < MAX_LOCAL && set[local_rank]);
}
