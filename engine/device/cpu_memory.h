/* Memory of the cpu devices. Inside engine/device only. */
#ifndef DS_DEVICE_CPU_MEMORY_H
#define DS_DEVICE_CPU_MEMORY_H

#include "engine/device/device.h"

/* The alloc, free and info of device_ops. */
void *cpu_alloc(struct device *dev, size_t bytes, enum mem_class class, struct err *err);
void cpu_free(struct device *dev, void *p);
void cpu_info(struct device *dev, struct mem_info *info);

#endif
