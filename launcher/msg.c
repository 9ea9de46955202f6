/* Frames between front end and agent: see msg.h. Invariant of a decoder: in.data[0..taken) was
 * returned already and goes at the next feed; a frame is judged by its header before its body is
 * there. */
#include "launcher/msg.h"

#include "engine/base/boot.h"

#include <math.h>
#include <signal.h>

#define HEADER_BYTES 9  /* length, type, epoch */
#define COUNTED_BYTES 5 /* of which the length counts type and epoch */
#define KEEP_BYTES 4096 /* of memory that an empty decoder may keep */

void msg_put(struct buf *out, enum msg_type type, uint32_t epoch, const void *data, size_t n)
{
    put_u32(out, (uint32_t)(COUNTED_BYTES + n));
    put_u8(out, (uint8_t)type);
    put_u32(out, epoch);
    buf_add(out, data, n);
}

void rank_end_put(struct buf *out, const struct rank_end *e)
{
    put_u32(out, (uint32_t)e->code);
    put_u32(out, (uint32_t)e->signal);
    put_f64(out, e->wall);
    put_u8(out, (uint8_t)e->oom);
    put_u32(out, e->phase);
    put_u64(out, e->step);
}

int rank_end_get(struct reader *r, struct rank_end *e)
{
    uint32_t code = get_u32(r), signo = get_u32(r);

    e->wall = get_f64(r);
    e->oom = get_u8(r);
    e->phase = get_u32(r);
    e->step = get_u64(r);
    if (!reader_done(r) || code > 255 || signo >= NSIG || !isfinite(e->wall) || e->phase > PHASE_DONE)
        return -1;
    e->code = (int)code;
    e->signal = (int)signo;
    return 0;
}

void msg_feed(struct msg_decoder *d, const void *data, size_t n)
{
    if (d->taken) {
        buf_drop(&d->in, d->taken);
        d->taken = 0;
    }
    buf_add(&d->in, data, n);
}

int msg_next(struct msg_decoder *d, struct msg *m, struct err *err)
{
    size_t have = d->in.len - d->taken;
    struct reader r = reader_of(d->in.data ? d->in.data + d->taken : NULL, have);
    uint32_t len;

    if (!have && d->in.cap > KEEP_BYTES) { /* thousands of nodes: none keeps a large buffer for later */
        buf_clear(&d->in);
        d->taken = 0;
    }
    if (have < HEADER_BYTES)
        return 0;
    len = get_u32(&r);
    m->type = (enum msg_type)get_u8(&r);
    m->epoch = get_u32(&r);
    if (len < COUNTED_BYTES || len > MSG_MAX_BYTES)
        return err_set(err, ERR_NODE,
                       "a frame of %u bytes is not ours (at most %u): something else "
                       "writes into the channel",
                       len, MSG_MAX_BYTES);
    if (m->type < MSG_HELLO || m->type > MSG_END)
        return err_set(err, ERR_NODE,
                       "a frame of type %d is not ours: something else writes into the "
                       "channel",
                       (int)m->type);
    m->len = len - COUNTED_BYTES;
    m->data = r.p;
    if (have < HEADER_BYTES + (size_t)m->len)
        return 0;
    d->taken += HEADER_BYTES + m->len;
    return 1;
}

void msg_decoder_clear(struct msg_decoder *d)
{
    buf_clear(&d->in);
    d->taken = 0;
}
