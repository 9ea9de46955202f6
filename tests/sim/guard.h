/* Memory that shows misuse: filled with NaN, an unmapped page right behind it, and the few bytes of
 * rounding before that page watched. */
#ifndef DS_TESTS_GUARD_H
#define DS_TESTS_GUARD_H

#include <stddef.h>

struct guard {
    void *data; /* 64-byte aligned */
    size_t bytes, mapped;
    void *map;
};

void guard_alloc(struct guard *g, size_t bytes);
void guard_free(struct guard *g);
void guard_poison(
    struct guard *g); /* every byte 0xff: NaN in f32, bf16 and f64, -1 as an integer */
void guard_fill(struct guard *g, int byte);
int guard_intact(const struct guard *g);

#endif
