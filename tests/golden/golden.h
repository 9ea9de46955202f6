/* Reads the golden files of this folder: a minimal safetensors reader for files that make_golden.py
 * wrote. Anything unexpected ends the test. */
#ifndef DS_TESTS_GOLDEN_H
#define DS_TESTS_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

struct golden {
    char *bytes, *header;
    size_t size, data_at;
};

void golden_open(struct golden *g, const char *name); /* "gpt2.safetensors", in tests/golden */
void golden_close(struct golden *g);
/* The tensor's bytes; type is "F32", "F64" or "I32", numel what the file must say. */
const void *golden_get(const struct golden *g, const char *name, const char *type, int64_t numel);

#endif
