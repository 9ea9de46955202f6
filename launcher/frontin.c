/* Our stdin to rank 0, to all ranks, or to none (--stdin). To all: what the slowest of them has room for is read, so
 * nothing piles up; a rank that ended, or closed its stdin, is waited for no longer.
 *
 * Invariants: least is the smallest of room[], at_least how many ranks have it; no rank has room for more than
 * MSG_STDIN_BYTES beyond what was sent, so what waits for an agent is bounded. */
#include "launcher/front.h"

#include <stdlib.h>
#include <string.h>

#define GONE UINT64_MAX

struct stdin_room {
    uint64_t *room; /* [ranks] bytes that each has ever had room for: all of them, or rank 0 */
    uint64_t sent;
    uint64_t least;
    int at_least;
    int ranks;
};

static int to_all(const struct front *f)
{
    return f->o->stdin_to && !strcmp(f->o->stdin_to, "all");
}

static void take(void *ctx, const void *data, size_t n)
{
    struct front *f = ctx;
    struct buf b = BUF_INIT;

    f->in->sent += n;
    put_u32(&b, to_all(f) ? MSG_NODE : 0);
    buf_add(&b, data, n);
    if (to_all(f))
        front_send_all(f, MSG_STDIN, b.data, b.len);
    else
        front_send(f, f->place.rank[0].node, MSG_STDIN, b.data, b.len);
    buf_clear(&b);
}

int front_stdin_open(struct front *f, struct err *err)
{
    if (f->task->engine || (f->o->stdin_to && !strcmp(f->o->stdin_to, "none")))
        return 0;
    f->pump = stdin_pump_create(&f->loop, STDIN_FILENO, take, f, err);
    if (!f->pump)
        return -1;
    f->in = xcalloc(1, sizeof *f->in);
    f->in->ranks = to_all(f) ? f->place.world : 1;
    f->in->room = xcalloc((size_t)f->in->ranks, sizeof *f->in->room);
    f->in->at_least = f->in->ranks;
    return 0;
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
    for (r = 0; r < in->ranks; r++) {
        if (in->room[r] < in->least) {
            in->least = in->room[r];
            in->at_least = 0;
        }
        in->at_least += in->room[r] == in->least;
    }
    if (in->least == GONE && to_all(f)) /* nobody reads: as much as comes may go */
        stdin_pump_want(f->pump, SIZE_MAX / 2);
    else if (in->least != GONE)
        stdin_pump_want(f->pump, (size_t)(in->least - before));
}

static void set_room(struct front *f, int rank, uint64_t room)
{
    f->in->at_least -= f->in->room[rank] == f->in->least;
    f->in->room[rank] = room;
    if (!f->in->at_least)
        look_again(f);
}

int front_stdin_want(struct front *f, int rank, uint32_t bytes, struct err *err)
{
    struct stdin_room *in = f->in;

    if (bytes == MSG_WANT_ALL)
        front_stdin_gone(f, rank);
    if (!in || bytes == MSG_WANT_ALL || !bytes)
        return 0;
    if (rank >= in->ranks || (in->room[rank] != GONE && in->room[rank] + bytes > in->sent + MSG_STDIN_BYTES))
        return err_set(err, ERR_NODE, "its agent asks for more of stdin than rank %d has room for", rank);
    if (in->room[rank] != GONE)
        set_room(f, rank, in->room[rank] + bytes);
    return 0;
}

void front_stdin_gone(struct front *f, int rank)
{
    if (f->in && rank < f->in->ranks && f->in->room[rank] != GONE)
        set_room(f, rank, GONE);
}
