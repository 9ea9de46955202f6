/* Time of comm_host's all-reduce among forked ranks. Buffers are rewritten before each operation; a
 * repetition's time is that of the slowest rank.
 *
 *   bench_comm RANKS MEGABYTES[,MEGABYTES...] [SECONDS [NETNS@ADDRESS NETNS@ADDRESS...]]
 *
 * With namespaces, they are the nodes and RANKS is the number on each. Prints one line per size:
 * MEGABYTES MEDIAN_MS.
 */
#include "engine/comm/comm.h"
#include "engine/base/clock.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RANKS 64
#define MAX_REPS 1000

static void check(int rc, const struct err *err)
{
    if (rc == 0)
        return;
    fprintf(stderr, "bench_comm: %s\n", err->text);
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void enter(const char *netns)
{
    char path[256];
    int fd;

    snprintf(path, sizeof path, "/run/netns/%s", netns);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET)) {
        perror(path);
        exit(1);
    }
    close(fd);
}

static double one(struct comm *c, float *x, int64_t n, struct err *err)
{
    struct coll barrier = {.op = COLL_BARRIER};
    struct coll sum = {.op = COLL_ALL_REDUCE, .send = x, .recv = x, .count = n, .dtype = DS_F32};
    struct coll slowest = {.op = COLL_ALL_REDUCE, .count = 1, .dtype = DS_F64, .reduce = COLL_MAX};
    double s;

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i & 1023) + (float)c->rank;
    check(comm_run(c, &barrier, err), err);
    s = (double)clock_ns();
    check(comm_run(c, &sum, err), err);
    s = ((double)clock_ns() - s) * 1e-6;
    slowest.send = slowest.recv = &s;
    check(comm_run(c, &slowest, err), err);
    if (x[1023] != (float)c->size * 1023 + (float)(c->size * (c->size - 1) / 2)) {
        fprintf(stderr, "bench_comm: a wrong sum: %g\n", (double)x[1023]);
        exit(1);
    }
    return s;
}

static void rank_main(struct boot *boot, char *sizes, double seconds)
{
    struct err err = ERR_INIT;
    struct device *dev;
    struct comm *c;
    static double ms[MAX_REPS];

    check(device_cpu.create(&dev, 0, &err), &err);
    check(comm_host.create(&c, boot, dev, 60000, &err), &err);
    for (char *s = strtok(sizes, ","); s; s = strtok(NULL, ",")) {
        int64_t n = (int64_t)(atof(s) * 1e6 / 4);
        float *x = c->ops->alloc(c, (size_t)n * 4, MEM_GRAD, &err);
        int reps = 0;
        double used = 0;

        check(x ? 0 : -1, &err);
        one(c, x, n, &err);
        while (reps < MAX_REPS && (used < seconds * 1e3 || reps < 5))
            used += ms[reps++] = one(c, x, n, &err);
        qsort(ms, (size_t)reps, sizeof *ms, by_value);
        if (c->rank == 0)
            printf("%s %.3f\n", s, ms[reps / 2]);
    }
    c->ops->destroy(c);
    dev->ops->destroy(dev);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int per = argc > 2 ? atoi(argv[1]) : 0, nodes = argc > 4 ? argc - 4 : 1, failed = 0;
    struct boot_world *world;

    if (per < 1 || per * nodes > MAX_RANKS) {
        fprintf(stderr, "usage: bench_comm RANKS MEGABYTES,... [SECONDS [NETNS@ADDRESS ...]]\n");
        return 2;
    }
    world = boot_world_create(per * nodes, nodes);
    for (int r = 0; r < per * nodes; r++) {
        struct boot *b = boot_world_rank(world, r);

        if (fork())
            continue;
        if (argc > 4) {
            char *at = strchr(argv[4 + b->node], '@');

            *at = 0;
            enter(argv[4 + b->node]);
            b->address = at + 1;
        }
        rank_main(b, argv[2], argc > 3 ? atof(argv[3]) : 1);
        _exit(0);
    }
    for (int status; wait(&status) > 0;)
        if (status && !failed) {
            failed = 1;
            boot_world_abort(world);
        }
    boot_world_destroy(world);
    return failed;
}
