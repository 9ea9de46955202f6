/* Memory, streams and events of a device: the seam between the engine and cpu or cuda.
 *
 * Device cpu: the compute stream is the caller (run executes at once), every other stream is one
 * worker thread, events are real. Device cpu-async (tests): every stream is a thread with seeded
 * random delays, so that a missing event wait shows without a GPU.
 */
#ifndef DS_DEVICE_H
#define DS_DEVICE_H

#include "engine/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct ds_stream; /* an ordered queue of work */
struct ds_event;  /* a point in a queue */
struct device;

enum stream_kind { STREAM_COMPUTE, STREAM_COMM, STREAM_COPY };

/* What memory is for; used now and at peak is counted per class. */
enum mem_class {
    MEM_PARAM,
    MEM_GRAD,
    MEM_OPTIM,
    MEM_ACT,
    MEM_BUFFER,
    MEM_COMM,
    MEM_SNAPSHOT,
    MEM_CLASSES
};
extern const char *const mem_class_name[MEM_CLASSES];

struct mem_info {
    uint64_t now[MEM_CLASSES], peak[MEM_CLASSES]; /* bytes asked for */
    uint64_t total, available;                    /* of the machine or card */
};

struct device_ops {
    const char *name;
    int (*probe)(char why[256]); /* 0: usable; why says what was found or what is missing */
    int (*create)(struct device **dev, int index, struct err *err);
    void (*destroy)(struct device *);
    /* 64-byte aligned (page-aligned from 1 MiB), content undefined. NULL and err when it cannot be.
     */
    void *(*alloc)(struct device *, size_t bytes, enum mem_class, struct err *err);
    void (*free)(struct device *, void *p);                         /* NULL is fine */
    struct ds_stream *(*stream)(struct device *, enum stream_kind); /* owned by the device */
    /* Enqueues fn(arg). fn must not block on a later event of the same stream. */
    void (*run)(struct ds_stream *, void (*fn)(void *arg), void *arg);
    struct ds_event *(*record)(struct ds_stream *); /* owned by the caller: event_done frees */
    void (*wait)(struct ds_stream *,
                 const struct ds_event *); /* work enqueued later waits for it */
    int (*event_done)(struct ds_event *,
                      int block); /* 1: reached (and freed), 0: not yet (only if !block) */
    void (*info)(struct device *, struct mem_info *);
};

/* First member of every device's struct. */
struct device {
    const struct device_ops *ops;
    uint64_t now[MEM_CLASSES], peak[MEM_CLASSES]; /* atomic; through device_count only */
};

extern const struct device_ops device_cpu, device_cpu_async;
extern const struct device_ops *const devices[]; /* in order of preference, NULL at the end */

/* Memory that is not from alloc (memfds of comm or of the agent) is counted by hand. */
void device_count(struct device *, enum mem_class, int64_t bytes);

#endif
