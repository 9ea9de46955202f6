/* XXH3-64 of stored bytes; the one place that includes xxhash. */
#ifndef DS_BASE_HASH_H
#define DS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash64(const void *data, size_t n);

struct hash_state; /* streaming */
struct hash_state *hash_create(void);
void hash_update(struct hash_state *h, const void *data, size_t n);
uint64_t hash_value(const struct hash_state *h);
void hash_destroy(struct hash_state *h); /* NULL is fine */

void hash_hex(uint64_t h, char out[17]); /* 16 lower-case hex digits */

#endif
