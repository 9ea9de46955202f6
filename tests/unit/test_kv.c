/* The key space: answers now or later, once for each node that asked; fences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/base/buf.h"
#include "launcher/kv.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

static struct buf said;

static void value(void *ctx, int node, const char *key, const void *v, size_t n)
{
    (void)ctx;
    buf_addf(&said, "%d:%s=%.*s ", node, key, (int)n, (const char *)v);
}

static void fenced(void *ctx, int node, const char *name)
{
    (void)ctx;
    buf_addf(&said, "%d!%s ", node, name);
}

static const struct kv_out out = {value, fenced};

static void expect(const char *what)
{
    assert_string_equal(buf_str(&said), what);
    buf_reset(&said);
}

static void put_get(void **state)
{
    struct kv *kv = kv_create(3, 6, &out, NULL);
    struct err err = ERR_INIT;
    (void)state;

    assert_int_equal(kv_get(kv, 2, "a", &err), 0);
    assert_int_equal(kv_get(kv, 0, "a", &err), 0);
    assert_int_equal(kv_get(kv, 2, "a", &err), 0);
    expect("");
    assert_int_equal(kv_put(kv, "a", "one", 3, &err), 0);
    expect("2:a=one 0:a=one "); /* in the order they asked */
    assert_int_equal(kv_get(kv, 1, "a", &err), 0);
    expect("1:a=one ");
    assert_int_equal(kv_put(kv, "a", "one", 3, &err), 0);
    assert_int_equal(kv_put(kv, "a", "two", 3, &err), -1);
    assert_non_null(strstr(err.text, "key a was put twice"));
    assert_int_equal(kv_put(kv, "empty", "", 0, &err), 0);
    assert_int_equal(kv_get(kv, 1, "empty", &err), 0);
    expect("1:empty= ");
    kv_destroy(kv);
}

static void many_keys(void **state)
{
    struct kv *kv = kv_create(1, 1, &out, NULL);
    struct err err = ERR_INIT;
    char key[32], want[64];
    int i;
    (void)state;

    for (i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "rank/%d", i);
        assert_int_equal(kv_put(kv, key, key, 5, &err), 0);
    }
    for (i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "rank/%d", i);
        snprintf(want, sizeof want, "0:%s=rank/ ", key);
        kv_get(kv, 0, key, &err);
        expect(want);
    }
    kv_destroy(kv);
}

static void fences(void **state)
{
    struct kv *kv = kv_create(3, 5, &out, NULL);
    struct err err = ERR_INIT;
    int round;
    (void)state;

    for (round = 0; round < 2; round++) {
        assert_int_equal(kv_fence(kv, 1, "f", 2, &err), 0);
        assert_int_equal(kv_fence(kv, 0, "g", 2, &err), 0);
        assert_int_equal(kv_fence(kv, 0, "f", 2, &err), 0);
        expect("");
        assert_int_equal(kv_fence(kv, 2, "f", 1, &err), 0);
        expect("0!f 1!f 2!f ");
        assert_int_equal(kv_fence(kv, 2, "g", 1, &err), 0);
        assert_int_equal(kv_fence(kv, 1, "g", 2, &err), 0);
        expect("0!g 1!g 2!g ");
    }
    assert_int_equal(kv_fence(kv, 1, "h", 2, &err), 0);
    assert_int_equal(kv_fence(kv, 1, "h", 2, &err), -1);
    assert_int_equal(kv_fence(kv, 0, "h", 4, &err), -1);
    assert_int_equal(kv_fence(kv, 0, "i", 0, &err), -1);
    assert_int_equal(kv_fence(kv, 0, "i", -2, &err), -1);
    kv_destroy(kv);
}

/* Whatever is sent without end, at 256 MiB it is refused: values, keys that are only asked for, fences. Names of
 * 1 MiB, so that 256 of them do not fit. A node may ask for all there is once, and not again and again. */
static void bounded(void **state)
{
    char *name = test_malloc((1 << 20) + 1);
    int kind, i, rc;
    (void)state;

    memset(name, 'x', 1 << 20);
    name[1 << 20] = 0;
    for (kind = 0; kind < 4; kind++) {
        struct kv *kv = kv_create(2, 4, &out, NULL);
        struct err err = ERR_INIT;

        for (i = 0, rc = 0; i < 300 && !rc; i++) {
            snprintf(name, 9, "%08d", kind < 3 ? i : 0);
            name[8] = 'x';
            rc = kind == 0   ? kv_put(kv, name, "v", 1, &err)
                 : kind == 1 ? kv_get(kv, i % 2, name, &err)
                 : kind == 2 ? kv_fence(kv, i % 2, name, 1, &err)
                             : i == 0 ? kv_put(kv, name, "v", 1, &err) : kv_get(kv, 1, name, &err);
            buf_reset(&said);
        }
        assert_int_equal(rc, -1);
        assert_in_range(i, 250, kind < 3 ? 256 : 258);
        assert_non_null(strstr(err.text, kind < 3 ? "more than 256 MiB" : "node 1 asks for more"));
        kv_destroy(kv);
    }
    test_free(name);
}

/* Short keys: what they take is the memory they lie in, and malloc is asked for that. */
static void short_keys(void **state)
{
    enum { WAITED, PUT, KINDS };
    (void)state;

    for (int kind = 0; kind < KINDS; kind++) {
        struct kv *kv = kv_create(3, 3, &out, NULL);
        struct mallinfo2 before = mallinfo2(), after;
        struct err err = ERR_INIT;
        char key[16];
        int i, rc = 0;

        for (i = 0; !rc; i++) {
            snprintf(key, sizeof key, "%d", i);
            rc = kind == WAITED ? kv_get(kv, i % 3, key, &err) : kv_put(kv, key, "12", 2, &err);
        }
        after = mallinfo2();
        assert_non_null(strstr(err.text, "more than 256 MiB"));
        assert_in_range(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd, 0, KV_TOTAL_BYTES);
        assert_true(i > 1000000);
        kv_destroy(kv);
    }
}

/* Keys for one reader are gone when they were got, whoever comes first: the puts below are 600 MiB, the answers too. */
static void once(void **state)
{
    struct kv *kv = kv_create(2, 4, &out, NULL);
    char *big = test_calloc(1, 1 << 20), key[32];
    size_t empty = kv_bytes(kv);
    struct err err = ERR_INIT;
    int i;
    (void)state;

    for (i = 0; i < 600; i++) {
        snprintf(key, sizeof key, "once/%d", i);
        if (i % 2)
            assert_int_equal(kv_get(kv, 1, key, &err), 0);
        assert_int_equal(kv_put(kv, key, big, 1 << 20, &err), 0);
        if (i % 2 == 0)
            assert_int_equal(kv_get(kv, 1, key, &err), 0);
        assert_int_not_equal(said.len, 0);
        buf_reset(&said);
    }
    assert_int_equal(kv_bytes(kv), empty);
    assert_int_equal(kv_put(kv, "once/0", "new", 3, &err), 0); /* as if it had never been */
    assert_int_equal(kv_get(kv, 0, "once/0", &err), 0);
    expect("0:once/0=new ");
    assert_int_equal(kv_get(kv, 0, "once/0", &err), 0);
    expect("");
    kv_destroy(kv);
    test_free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(put_get), cmocka_unit_test(many_keys),
                                       cmocka_unit_test(fences), cmocka_unit_test(bounded),
                                       cmocka_unit_test(short_keys), cmocka_unit_test(once)};
    int rc = cmocka_run_group_tests_name("kv", tests, NULL, NULL);

    buf_clear(&said);
    return rc;
}
