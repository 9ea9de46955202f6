/* The bytes of checkpoint files: fixed by golden files, and no wrong number in a header gets
 * through. */
#include "engine/ckpt/format.h"
#include "tests/unit/ckpt_model.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int has(const char *text, const char *part)
{
    if (!strstr(text, part))
        print_message("\"%s\" is not in: %s\n", part, text);
    return strstr(text, part) != NULL;
}

/* entry, metadata of the fragment, what the sentence must say; the file has 16 bytes of data */
static const struct {
    const char *entry, *frag, *want;
} bad[] = {
    {"\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]",
     "shape 4 lo 0 hi 4 xxh3 0123456789abcdef", NULL},
    {"\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,17]",
     "shape 4 lo 0 hi 4 xxh3 0123456789abcdef", "cut short"},
    {"\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,12]",
     "shape 4 lo 0 hi 4 xxh3 0123456789abcdef", "shape does not fit"},
    {"\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[4,16]",
     "shape 3 lo 0 hi 3 xxh3 0123456789abcdef", "gap or an overlap"},
    {"\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]",
     "shape 3 lo 0 hi 3 xxh3 0123456789abcdef", "holds 16 bytes of data where its header has 12"},
    {"\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]",
     "shape 4 lo 0 hi 4 xxh3 0123456789abcdef", "cut short"},
    {"\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[-1,16]",
     "shape 4 lo 0 hi 4 xxh3 0123456789abcdef", "malformed entry"},
    {"\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,1e30]",
     "shape 4 lo 0 hi 4 xxh3 0123456789abcdef", "malformed entry"},
    {"\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,16]",
     "shape 4 lo 0 hi 4 xxh3 0123456789abcdef", "shape does not fit"},
    {"\"dtype\":\"F31\",\"shape\":[4],\"data_offsets\":[0,16]",
     "shape 4 lo 0 hi 4 xxh3 0123456789abcdef", "unknown type F31"},
    {"\"dtype\":\"I32\",\"shape\":[4],\"data_offsets\":[0,16]",
     "shape 4 lo 0 hi 4 xxh3 0123456789abcdef", "range does not fit"},
    {"\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]",
     "shape 3 lo 0 hi 4 xxh3 0123456789abcdef", "range does not fit"},
    {"\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]",
     "shape 9 lo 1 hi 5 xxh3 0123456789abcdef", "range does not fit"},
    {"\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]",
     "shape 99,99999999999999999 lo 0 hi 4 xxh3 0123456789abcdef", "range does not fit"},
    {"\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]",
     "shape 4 lo 0 hi 99999999999999999999 xxh3 0123456789abcdef", "metadata is malformed"},
    {"\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]",
     "shape 4 lo 0 hi 4 xxh3 0000000000000000", "never finished"},
    {"\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]", "shape 4 lo 0 hi 4 xxh3 0123",
     "metadata is malformed"},
};

static void wrong_numbers_in_headers(void **state)
{
    struct st_header h;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *text = xasprintf("{\"__metadata__\":{\"format\":\"ds-launch fragments "
                               "1\",\"a|w|0\":\"%s\"},\"a|w|0\":{%s}}",
                               bad[i].frag, bad[i].entry);
        size_t n = strlen(text);
        int rc = st_header_parse(&h, "f", text, n, 8 + n + 16, 1, &err);

        if (!bad[i].want) {
            assert_int_equal(rc, 0);
            st_header_clear(&h);
        } else {
            assert_int_equal(rc, -1);
            assert_true(has(err.text, bad[i].want));
        }
        free(text);
    }
    assert_int_equal(st_header_parse(&h, "f", "{}", 2, 10, 1, &err), -1);
    assert_true(has(err.text, "not a checkpoint file of ds-launch"));
    assert_int_equal(st_header_parse(&h, "f", "{\"a\":1,\"a\":2}", 13, 21, 0, &err), -1);
    assert_true(has(err.text, "duplicate object key"));
    assert_int_equal(st_header_parse(&h, "f", "[]", 2, 10, 0, &err), -1);
    assert_int_equal(st_header_parse(&h, "f", "{}", 2, 9, 0, &err), -1);
}

/* The bytes of both stored forms, fixed: tests/golden/ckpt was checked with the safetensors
 * library. */
static void golden_bytes(void **state)
{
    const char *top = getenv("top_srcdir");
    struct ckpt_entry own[TENSORS], all[TENSORS];
    struct ckpt_meta meta = meta_of(7);
    struct image im = {0};
    struct buf text = BUF_INIT;
    static const char *const names[] = {"rank-0.safetensors", "manifest.json"};
    struct ckpt_file file = {(char *)"rank-0.safetensors", 0, 0, 0x0123456789abcdef};
    float room[256];

    (void)state;
    share(1, 3, own, room);
    for (int t = 0; t < TENSORS; t++) {
        all[t] = entry_of(t);
        for (uint64_t i = 0; i < own[t].count; i++)
            own[t].data[i] = value_of(t, own[t].first + i, 7);
    }
    own[2] = entry_of(2); /* one whole tensor among the parts */
    own[2].data = room + 200;
    for (uint64_t i = 0; i < own[2].count; i++)
        own[2].data[i] = value_of(2, i, 7);
    image_build(&im, &meta, 0, own, TENSORS, all, TENSORS);
    image_seal(&im);
    file.bytes = im.bytes;
    file.header_bytes = im.header_bytes;
    manifest_print_head(&meta, all, TENSORS, &text);
    manifest_print_files(&file, 1, &text);
    for (int i = 0; i < 2; i++) {
        char *path = xasprintf("%s/tests/golden/ckpt/%s", top ? top : ".", names[i]);
        FILE *f = fopen(path, getenv("DS_GOLDEN_WRITE") ? "w+" : "r");
        static char want[16384];
        const char *have = i ? text.data : im.data;
        size_t n = i ? text.len : im.bytes;

        if (!f)
            fail_msg("%s: %s", path, strerror(errno));
        if (getenv("DS_GOLDEN_WRITE")) {
            fwrite(have, 1, n, f);
            rewind(f);
        }
        assert_int_equal(fread(want, 1, sizeof want, f), n);
        assert_memory_equal(have, want, n);
        fclose(f);
        free(path);
    }
    image_clear(&im);
    buf_clear(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_numbers_in_headers),
        cmocka_unit_test(golden_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
