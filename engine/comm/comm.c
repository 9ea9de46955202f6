/* The list of backends, and the two helpers that stand on any of them. */
#include "engine/comm/comm.h"

#include <stddef.h>

const struct comm_ops *const comms[] = {&comm_self, &comm_thread, &comm_host, NULL};

int comm_create(struct comm **out, struct boot *boot, struct device *dev, int64_t timeout_ms,
                struct err *err)
{
    char why[256] = "no backend was built";

    for (int i = 0; comms[i]; i++)
        if (comms[i]->probe(boot, why) == 0)
            return comms[i]->create(out, boot, dev, timeout_ms, err);
    return err_set(err, ERR_RANK, "no way for ranks to talk to each other is usable: %s", why);
}

int comm_run(struct comm *comm, const struct coll *op, struct err *err)
{
    const struct device_ops *dev = comm->device->ops;
    struct ds_stream *stream = dev->stream(comm->device, STREAM_COMPUTE);

    if (comm->ops->submit(comm, op, 1, stream, err))
        return -1;
    dev->event_done(dev->record(stream), 1);
    return comm->ops->poll(comm, err);
}
