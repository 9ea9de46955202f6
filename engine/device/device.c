/* What all devices share: their list, the names of memory classes, and counting. */
#include "engine/device/device.h"

const char *const mem_class_name[MEM_CLASSES] = {
    [MEM_PARAM] = "param",   [MEM_GRAD] = "grad", [MEM_OPTIM] = "optim",       [MEM_ACT] = "act",
    [MEM_BUFFER] = "buffer", [MEM_COMM] = "comm", [MEM_SNAPSHOT] = "snapshot",
};

const struct device_ops *const devices[] = {&device_cpu, &device_cpu_async, NULL};

void device_count(struct device *dev, enum mem_class class, int64_t bytes)
{
    uint64_t now = __atomic_add_fetch(&dev->now[class], (uint64_t)bytes, __ATOMIC_RELAXED);
    uint64_t peak = __atomic_load_n(&dev->peak[class], __ATOMIC_RELAXED);

    while (bytes > 0 && now > peak &&
           !__atomic_compare_exchange_n(&dev->peak[class], &peak, now, 1, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
        ;
}
