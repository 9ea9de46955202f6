/* Any bytes through the reader: the first half says what to read from the second. It never leaves
 * the message, and once failed it stays failed and gives zeros. */
#include "engine/base/wire.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

static uint64_t read_one(struct reader *r, int what)
{
    uint32_t n = 0;
    char *s;

    switch (what % 8) {
    case 0:
        return get_u8(r);
    case 1:
        return get_u16(r);
    case 2:
        return get_u32(r);
    case 3:
        return get_u64(r);
    case 4:
        return (uint64_t)get_i64(r);
    case 5:
        return get_f64(r) != 0;
    case 6:
        s = get_str(r);
        n = (uint32_t)*s;
        free(s);
        return n;
    default: {
        const uint8_t *p = get_bytes(r, &n);
        uint64_t sum = 0;

        LAW(p || n == 0);
        for (uint32_t i = 0; i < n; i++) /* touches all of it, for the sanitizer */
            sum += p[i];
        return sum;
    }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t half = n / 2;
    struct reader r = reader_of(data + half, n - half);

    for (size_t i = 0; i < half; i++) {
        int failed = r.failed;
        uint64_t v = read_one(&r, data[i]);

        LAW(r.p <= r.end);
        if (failed)
            LAW(r.failed && v == 0);
    }
    LAW(!reader_done(&r) || (r.p == r.end && !r.failed));
    return 0;
}
