/* Any bytes as a safetensors file and as a manifest. What is accepted lies within its bounds. */
#include "engine/base/hash.h"
#include "engine/ckpt/format.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void as_file(const uint8_t *data, size_t n, int ours)
{
    struct st_header h;
    struct err err = ERR_INIT;
    uint64_t len = 0;

    if (n < 8)
        return;
    for (int i = 0; i < 8; i++)
        len |= (uint64_t)data[i] << (8 * i);
    if (len > n - 8)
        len = n - 8;
    if (st_header_parse(&h, "f", (const char *)data + 8, len, n, ours, &err) < 0) {
        LAW(err.code == ERR_INPUT_FILE && *err.text);
        return;
    }
    LAW(h.data_at <= n);
    for (int i = 0; i < h.n; i++) {
        const struct st_entry *e = &h.entry[i];

        LAW(e->at <= n - h.data_at && e->bytes <= n - h.data_at - e->at);
        LAW(!h.ours ||
            (e->first <= e->total && e->count <= e->total - e->first && e->count * 4 == e->bytes));
    }
    st_header_clear(&h);
}

/* data is the text before the hash that ends a manifest, so that mutants get past it. */
static void as_manifest(const uint8_t *data, size_t n)
{
    struct manifest m;
    struct err err = ERR_INIT;
    struct buf text = BUF_INIT;
    char hex[17];

    buf_add(&text, data, n);
    hash_hex(hash64(buf_str(&text), text.len), hex);
    buf_addf(&text, MANIFEST_SEAL "%s\"}\n", hex);
    if (manifest_parse(&m, "f", text.data, text.len, &err) == 0) {
        for (int i = 0; i < m.nfiles; i++)
            LAW(!strchr(m.file[i].name, '/') && m.file[i].header_bytes <= m.file[i].bytes);
        LAW(m.meta.config && m.meta.step >= 0);
        manifest_clear(&m);
    } else {
        LAW(err.code == ERR_INPUT_FILE && *err.text);
    }
    buf_clear(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    as_file(data, n, 0);
    as_file(data, n, 1);
    as_manifest(data, n);
    return 0;
}
