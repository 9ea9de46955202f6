/* See world.h. Ranks that are processes are forked before any thread is made, so sanitizers are
 * happy. */
#include "tests/sim/world.h"
#include "engine/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct shared {
    char why[WORLD_MAX][1024];
};

struct one {
    struct world_run *w;
    struct boot *boot;
    char *why;
    int rc;
};

static void *one_rank(void *arg)
{
    struct one *o = arg;
    const struct device_ops *ops = o->w->device ? o->w->device : &device_cpu;
    struct device *dev = NULL;
    struct comm *comm = NULL;
    struct err err = ERR_INIT;

    if (ops->create(&dev, o->boot->rank, &err) ||
        o->w->ops->create(&comm, o->boot, dev, o->w->timeout_ms, &err)) {
        snprintf(o->why, 1024, "create: %s", err.text);
        o->rc = o->w->create_may_fail ? 0 : -1;
    } else {
        o->rc = o->w->fn(comm, o->boot, o->w->arg, o->why);
    }
    if (comm)
        comm->ops->destroy(comm);
    ops->destroy(dev);
    return NULL;
}

static void reap(struct world_run *w, struct boot_world *world, pid_t *pid, int abort_on_death)
{
    for (int left = w->n; left;) {
        int status;
        pid_t got = waitpid(-1, &status, 0);

        if (got < 0 && errno == EINTR)
            continue;
        for (int r = 0; r < w->n; r++)
            if (pid[r] == got) {
                w->rc[r] = WIFEXITED(status) ? -WEXITSTATUS(status) : 1000 + WTERMSIG(status);
                left--;
                if (w->rc[r] >= 1000 && abort_on_death)
                    boot_world_abort(world);
            }
    }
}

static void run_processes(struct world_run *w, struct boot_world *world, int abort_on_death)
{
    struct shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[WORLD_MAX];

    for (int r = 0; r < w->n; r++) {
        pid[r] = fork();
        if (pid[r] == 0) {
            struct one o = {w, boot_world_rank(world, r), s->why[r], 0};

            one_rank(&o);
            _exit(o.rc ? 1 : 0);
        }
    }
    reap(w, world, pid, abort_on_death);
    memcpy(w->why, s->why, sizeof w->why);
    munmap(s, sizeof *s);
}

static void run_threads(struct world_run *w, struct boot_world *world)
{
    pthread_t thread[WORLD_MAX];
    struct one o[WORLD_MAX];

    for (int r = 0; r < w->n; r++) {
        o[r] = (struct one){w, boot_world_rank(world, r), w->why[r], 0};
        pthread_create(&thread[r], NULL, one_rank, &o[r]);
    }
    for (int r = 0; r < w->n; r++) {
        pthread_join(thread[r], NULL);
        w->rc[r] = o[r].rc;
    }
}

static void read_lost(struct world_run *w, struct boot_world *world)
{
    struct boot *b = boot_world_rank(world, 0);

    for (int r = 0; r < w->n; r++) {
        char key[64], *value;
        size_t n;

        snprintf(key, sizeof key, "peer_lost/%d", r);
        w->lost[r][0] = 0;
        if (b->get(b, key, (void **)&value, &n, clock_ms(), NULL) == 0) {
            snprintf(w->lost[r], sizeof w->lost[r], "%s", value);
            free(value);
        }
    }
}

int world_run(struct world_run *w, int abort_on_death)
{
    int one_node[WORLD_MAX] = {0}, rc = 0;
    struct boot_world *world = boot_world_create_on(w->n, w->node_of ? w->node_of : one_node);

    memset(w->why, 0, sizeof w->why);
    if (w->as_threads)
        run_threads(w, world);
    else
        run_processes(w, world, abort_on_death);
    read_lost(w, world);
    for (int r = 0; r < w->n; r++)
        rc = w->rc[r] ? -1 : rc;
    boot_world_destroy(world);
    return rc;
}
