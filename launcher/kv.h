/* The front end's key space of one epoch: what ranks put, who waits for what, and fences. It knows nodes
 * by number and answers through two callbacks, so it is tested without a network. */
#ifndef DS_KV_H
#define DS_KV_H

#include "engine/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define KV_VALUE_BYTES (1u << 20)   /* one value */
#define KV_TOTAL_BYTES (256u << 20) /* all of an epoch: keys, values, who waits, fences, with the memory they
                                     * lie in; and the answers to one node */

struct kv_out {
    void (*value)(void *ctx, int node, const char *key, const void *value, size_t n);
    void (*fenced)(void *ctx, int node, const char *name);
};

struct kv;

struct kv *kv_create(int nodes, int world, const struct kv_out *out, void *ctx);
void kv_destroy(struct kv *kv); /* NULL is fine */
size_t kv_bytes(const struct kv *kv); /* what it keeps now */

/* Stores a copy and answers every node that waits for it. A key that is there already may be put again
 * with the same bytes only: two ranks that disagree about one key are a bug of the program. A key that begins with
 * BOOT_ONCE is gone when it was answered. */
int kv_put(struct kv *kv, const char *key, const void *value, size_t n, struct err *err);
/* Answers now, or when the key comes. A node that asks twice while waiting is answered once. A node asks for a key
 * once, so all answers to it fit into KV_TOTAL_BYTES; one that asks on and on is an error. */
int kv_get(struct kv *kv, int node, const char *key, struct err *err);
/* All count ranks of the node (1 or more) have arrived at the fence; when the whole world has, every node that
 * said so is told and the name may be used again. A node that arrives twice at one fence is an error. */
int kv_fence(struct kv *kv, int node, const char *name, int count, struct err *err);

#endif
