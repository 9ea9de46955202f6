/* Our stdin to rank 0, to all ranks, or to none (--stdin). To all: what the slowest of them has room for is read, so
 * nothing piles up; a rank that ended, or closed its stdin, is waited for no longer.
 *
 * Invariant: least is the smallest of room[], at_least how many ranks have it. */
#include "launcher/front.h"

#include <stdlib.h>
#include <string.h>

#define GONE UINT64_MAX

struct stdin_room {
    uint64_t *room; /* [world] bytes that each rank has ever had room for */
    uint64_t least;
    int at_least;
};

static int to_all(const struct front *f)
{
    return f->o->stdin_to && !strcmp(f->o->stdin_to, "all");
}

static void take(void *ctx, const void *data, size_t n)
{
    struct front *f = ctx;
    struct buf b = BUF_INIT;

    put_u32(&b, to_all(f) ? MSG_NODE : 0);
    buf_add(&b, data, n);
    if (to_all(f))
        front_send_all(f, MSG_STDIN, b.data, b.len);
    else
        front_send(f, f->place.rank[0].node, MSG_STDIN, b.data, b.len);
    buf_clear(&b);
}

void front_stdin_open(struct front *f)
{
    if (f->task->engine || (f->o->stdin_to && !strcmp(f->o->stdin_to, "none")))
        return;
    f->pump = stdin_pump_create(&f->loop, STDIN_FILENO, take, f);
    if (!to_all(f))
        return;
    f->in = xcalloc(1, sizeof *f->in);
    f->in->room = xcalloc((size_t)f->place.world, sizeof *f->in->room);
    f->in->at_least = f->place.world;
}

void front_stdin_close(struct front *f)
{
    stdin_pump_destroy(f->pump);
    f->pump = NULL;
    if (f->in)
        free(f->in->room);
    free(f->in);
    f->in = NULL;
}

int front_stdin_rank(const struct front *f)
{
    return !f->pump ? -1 : to_all(f) ? SPAWN_STDIN_ALL : 0;
}

/* Looks for the least again. Every rank has moved since the last time, so this costs each of them one look. */
static void look_again(struct front *f)
{
    struct stdin_room *in = f->in;
    uint64_t before = in->least;
    int r;

    in->least = GONE;
    for (r = 0; r < f->place.world; r++) {
        if (in->room[r] < in->least) {
            in->least = in->room[r];
            in->at_least = 0;
        }
        in->at_least += in->room[r] == in->least;
    }
    if (in->least == GONE) /* nobody reads: as much as comes may go */
        stdin_pump_want(f->pump, SIZE_MAX / 2);
    else
        stdin_pump_want(f->pump, (size_t)(in->least - before));
}

void front_stdin_want(struct front *f, int rank, uint32_t bytes)
{
    uint64_t *room;

    if (!f->pump || (!f->in && bytes == MSG_WANT_ALL))
        return;
    if (!f->in) {
        stdin_pump_want(f->pump, bytes);
        return;
    }
    room = &f->in->room[rank];
    if (*room == GONE || !bytes)
        return;
    f->in->at_least -= *room == f->in->least;
    *room = bytes == MSG_WANT_ALL ? GONE : *room + bytes;
    if (!f->in->at_least)
        look_again(f);
}
