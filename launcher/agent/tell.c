/* What an agent says of its ranks, as frames: one place for each, so that real ranks and simulated ones can't
 * differ. */
#include "launcher/agent/agent.h"

void tell_started(struct team *t, int rank, pid_t pid)
{
    struct buf b = BUF_INIT;

    put_u32(&b, (uint32_t)rank);
    put_u32(&b, (uint32_t)pid);
    chan_sendb(t->agent->chan, MSG_STARTED, t->epoch, &b);
}

void tell_output(struct team *t, int rank, int which, const void *data, size_t n)
{
    struct buf b = BUF_INIT;

    buf_reserve(&b, n + 5);
    put_u32(&b, (uint32_t)rank);
    put_u8(&b, (uint8_t)which);
    buf_add(&b, data, n);
    t->agent->credit -= (int64_t)n;
    chan_sendb(t->agent->chan, MSG_OUTPUT, t->epoch, &b);
}

void tell_exit(struct team *t, int rank, const struct rank_end *end)
{
    struct buf b = BUF_INIT;

    put_u32(&b, (uint32_t)rank);
    rank_end_put(&b, end);
    chan_sendb(t->agent->chan, MSG_EXIT, t->epoch, &b);
}

void tell_checked(struct agent *a, uint32_t epoch, enum err_code code, const char *text)
{
    struct buf b = BUF_INIT;

    put_u32(&b, (uint32_t)code);
    put_str(&b, text);
    chan_sendb(a->chan, MSG_CHECKED, epoch, &b);
}

void agent_fail(struct agent *a, uint32_t epoch, uint32_t rank, const struct err *err)
{
    struct buf b = BUF_INIT;

    put_u32(&b, rank);
    put_u32(&b, (uint32_t)err->code);
    put_str(&b, err->text);
    chan_sendb(a->chan, MSG_FAIL, epoch, &b);
}

void team_fail(struct team *t, uint32_t rank, const struct err *err)
{
    agent_fail(t->agent, t->epoch, rank, err);
}
