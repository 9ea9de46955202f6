/* A safetensors file is a little-endian 64-bit length, that many bytes of JSON, then the data. The
 * JSON has an entry "NAME":{"dtype":"F32","shape":[..],"data_offsets":[lo,hi]} per tensor. */
#include "tests/golden/golden.h"

#include "engine/base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

void golden_open(struct golden *g, const char *name)
{
    const char *top = getenv("top_srcdir");
    char *path = xasprintf("%s/tests/golden/%s", top ? top : ".", name);
    FILE *f = fopen(path, "rb");
    uint64_t header;
    long size = 0;

    if (!f || fseek(f, 0, SEEK_END) < 0 || (size = ftell(f)) < 8)
        fail_msg("%s cannot be read: set top_srcdir", path);
    rewind(f);
    g->size = (size_t)size;
    g->bytes = xmalloc(g->size);
    assert_int_equal(fread(g->bytes, 1, g->size, f), g->size);
    fclose(f);
    free(path);
    memcpy(&header, g->bytes, 8);
    assert_true(header < g->size - 8);
    g->header = xstrndup(g->bytes + 8, header);
    g->data_at = 8 + header;
}

void golden_close(struct golden *g)
{
    free(g->bytes);
    free(g->header);
}

const void *golden_get(const struct golden *g, const char *name, const char *type, int64_t numel)
{
    char *key = xasprintf("\"%s\":{\"dtype\":\"%s\"", name, type);
    const char *entry = strstr(g->header, key), *offsets;
    size_t lo, hi, width = strcmp(type, "F64") == 0 ? 8 : 4;

    if (!entry)
        fail_msg("no %s tensor %s in the golden file", type, name);
    free(key);
    offsets = strstr(entry, "\"data_offsets\":[");
    assert_non_null(offsets);
    assert_int_equal(sscanf(offsets, "\"data_offsets\":[%zu,%zu]", &lo, &hi), 2);
    if (hi - lo != (size_t)numel * width || g->data_at + hi > g->size)
        fail_msg("tensor %s has %zu bytes in the golden file, not %zu", name, hi - lo,
                 (size_t)numel * width);
    return g->bytes + g->data_at + lo;
}
