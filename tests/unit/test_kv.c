/* The key space: answers now or later, once for each node that asked; fences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/base/buf.h"
#include "launcher/kv.h"

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
    struct buf waiting = BUF_INIT;
    int round;
    (void)state;

    for (round = 0; round < 2; round++) {
        assert_int_equal(kv_fence(kv, 1, "f", 2, &err), 0);
        assert_int_equal(kv_fence(kv, 0, "g", 2, &err), 0);
        assert_int_equal(kv_fence(kv, 0, "f", 2, &err), 0);
        expect("");
        kv_waiting(kv, &waiting);
        assert_non_null(strstr(buf_str(&waiting), "fence f (4 of 5 ranks there)"));
        buf_reset(&waiting);
        assert_int_equal(kv_fence(kv, 2, "f", 1, &err), 0);
        expect("0!f 1!f 2!f ");
        assert_int_equal(kv_fence(kv, 2, "g", 1, &err), 0);
        assert_int_equal(kv_fence(kv, 1, "g", 2, &err), 0);
        expect("0!g 1!g 2!g ");
    }
    assert_int_equal(kv_fence(kv, 1, "h", 2, &err), 0);
    assert_int_equal(kv_fence(kv, 1, "h", 2, &err), -1);
    assert_int_equal(kv_fence(kv, 0, "h", 4, &err), -1);
    buf_clear(&waiting);
    kv_destroy(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(put_get), cmocka_unit_test(many_keys),
                                       cmocka_unit_test(fences)};
    int rc = cmocka_run_group_tests_name("kv", tests, NULL, NULL);

    buf_clear(&said);
    return rc;
}
