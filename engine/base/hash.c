/* XXH3-64: see hash.h. */
#include "engine/base/hash.h"
#include "engine/base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

struct hash_state {
    XXH3_state_t *x; /* xxhash aligns it itself */
};

uint64_t hash64(const void *data, size_t n)
{
    return XXH3_64bits(data, n);
}

struct hash_state *hash_create(void)
{
    struct hash_state *h = xmalloc(sizeof *h);

    h->x = XXH3_createState();
    if (!h->x)
        xmalloc(SIZE_MAX / 2); /* says it and ends */
    XXH3_64bits_reset(h->x);
    return h;
}

void hash_update(struct hash_state *h, const void *data, size_t n)
{
    XXH3_64bits_update(h->x, data, n);
}

uint64_t hash_value(const struct hash_state *h)
{
    return XXH3_64bits_digest(h->x);
}

void hash_destroy(struct hash_state *h)
{
    if (!h)
        return;
    XXH3_freeState(h->x);
    free(h);
}

void hash_hex(uint64_t h, char out[17])
{
    snprintf(out, 17, "%016llx", (unsigned long long)h);
}
