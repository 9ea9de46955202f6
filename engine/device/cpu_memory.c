/* Memory of the cpu devices: heap below 1 MiB, mappings with huge-page advice from there on.
 *
 * Every block has a 64-byte head in front of the pointer given out, so free needs no table. A big
 * block starts on a huge-page boundary and its head lies in the page before.
 */
#include "engine/device/cpu_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGN 64
#define BIG ((size_t)1 << 20)
#define HUGE ((size_t)2 << 20)
#define MAGIC UINT64_C(0x64732d626c6f636b)

struct head {
    uint64_t magic, bytes;
    void *base;    /* what the system gave */
    size_t mapped; /* bytes to unmap; 0: from the heap */
    uint32_t class;
};
_Static_assert(sizeof(struct head) <= ALIGN, "the head fits in front of an aligned block");

static struct head *head_of(void *p)
{
    return (struct head *)((char *)p - ALIGN);
}

static void *map_big(size_t bytes, struct head *head)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t len = (bytes + page - 1) / page * page + HUGE + page;
    char *base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED)
        return NULL;
    head->base = base;
    head->mapped = len;
    base += page;
    base += (HUGE - (uintptr_t)base % HUGE) % HUGE;
    madvise(base, bytes, MADV_HUGEPAGE); /* advice only: a kernel without it is fine */
    return base;
}

void *cpu_alloc(struct device *dev, size_t bytes, enum mem_class class, struct err *err)
{
    struct head head = {.magic = MAGIC, .bytes = bytes, .class = class};
    char *p = NULL;

    if (bytes > (size_t)1 << 46)
        errno = ENOMEM;
    else if (bytes >= BIG)
        p = map_big(bytes, &head);
    else if ((errno = posix_memalign(&head.base, ALIGN, bytes + ALIGN)) == 0)
        p = (char *)head.base + ALIGN;
    if (!p) {
        err_set(err, ERR_RANK,
                "cannot allocate %zu bytes for %s: %m; use a smaller model or batch, or "
                "fewer ranks on this machine",
                bytes, mem_class_name[class]);
        return NULL;
    }
    memcpy(head_of(p), &head, sizeof head);
    device_count(dev, class, (int64_t)bytes);
    return p;
}

void cpu_free(struct device *dev, void *p)
{
    struct head head;

    if (!p)
        return;
    memcpy(&head, head_of(p), sizeof head);
    if (head.magic != MAGIC)
        abort(); /* not ours, or freed twice: going on would corrupt memory */
    head_of(p)->magic = 0;
    device_count(dev, (enum mem_class)head.class, -(int64_t)head.bytes);
    if (head.mapped)
        munmap(head.base, head.mapped);
    else
        free(head.base);
}

static uint64_t meminfo(const char *text, const char *field)
{
    const char *at = strstr(text, field);

    return at ? strtoull(at + strlen(field), NULL, 10) * 1024 : 0;
}

void cpu_info(struct device *dev, struct mem_info *info)
{
    char text[4096];
    FILE *f = fopen("/proc/meminfo", "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

    if (f)
        fclose(f);
    text[n] = 0;
    info->total = meminfo(text, "MemTotal:");
    info->available = meminfo(text, "MemAvailable:");
    for (int i = 0; i < MEM_CLASSES; i++) {
        info->now[i] = __atomic_load_n(&dev->now[i], __ATOMIC_RELAXED);
        info->peak[i] = __atomic_load_n(&dev->peak[i], __ATOMIC_RELAXED);
    }
}
