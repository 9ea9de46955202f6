/* Any bytes as the beginning of a token file, with its true size and with a made-up one. Laws: refused
 * with a sentence that names the file, or the count fits the size exactly and survives the way back. */
#include "engine/data/file.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void try_size(const uint8_t *data, size_t n, uint64_t file_bytes)
{
    struct bin_header h = {0}, again;
    struct err err = ERR_INIT;
    uint8_t out[BIN_HEADER_BYTES];

    if (bin_header_read(&h, "F", data, n, file_bytes, &err)) {
        LAW(err.code == ERR_INPUT_FILE && strncmp(err.text, "F ", 2) == 0);
        return;
    }
    LAW(h.tokens > 0 && (h.width == 2 || h.width == 4));
    LAW(BIN_HEADER_BYTES + (uint64_t)h.tokens * (uint64_t)h.width == file_bytes);
    bin_header_write(out, h.width, h.tokens);
    LAW(bin_header_read(&again, "F", out, sizeof out, file_bytes, &err) == 0);
    LAW(again.tokens == h.tokens && again.width == h.width);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint32_t count;

    try_size(data, n, n);
    if (n < BIN_HEADER_BYTES)
        return 0;
    memcpy(&count, data + 8, 4);
    try_size(data, n, BIN_HEADER_BYTES + 2 * (uint64_t)count);
    try_size(data, n, BIN_HEADER_BYTES + 4 * (uint64_t)count);
    try_size(data, n, BIN_HEADER_BYTES + 2 * ((uint64_t)count + (UINT64_C(1) << 32)));
    return 0;
}
