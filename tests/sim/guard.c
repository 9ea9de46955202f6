/* Guarded memory: see guard.h. The block ends, up to alignment, where an unmapped page begins. */
#include "tests/sim/guard.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CANARY 0xa5

static size_t rounded(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

void guard_alloc(struct guard *g, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (rounded(bytes) + page - 1) / page * page;

    g->bytes = bytes;
    g->mapped = room + page;
    g->map = mmap(NULL, g->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->map == MAP_FAILED || mprotect((char *)g->map + room, page, PROT_NONE) < 0) {
        perror("guard_alloc");
        abort();
    }
    g->data = (char *)g->map + room - rounded(bytes);
    memset((char *)g->data + bytes, CANARY, rounded(bytes) - bytes);
    guard_poison(g);
}

void guard_free(struct guard *g)
{
    if (g->map)
        munmap(g->map, g->mapped);
    *g = (struct guard){0};
}

void guard_fill(struct guard *g, int byte)
{
    memset(g->data, byte, g->bytes);
}

void guard_poison(struct guard *g)
{
    guard_fill(g, 0xff);
}

int guard_intact(const struct guard *g)
{
    const uint8_t *p = (const uint8_t *)g->data + g->bytes;

    for (size_t i = 0; i < rounded(g->bytes) - g->bytes; i++)
        if (p[i] != CANARY)
            return 0;
    return 1;
}
