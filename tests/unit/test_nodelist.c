/* Node lists: expected names are written by hand; what libslurm, pdsh and nodeset do with the same
 * text decided which forms are accepted. */
#include "hostfile/nodelist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The expansion joined by blanks; "!" and the error's text when refused. Owned by the caller. */
static char *expand(const char *text)
{
    struct nodelist l = {0};
    struct err err = ERR_INIT;
    struct buf b = BUF_INIT;

    if (nodelist_expand(&l, text, strlen(text), 1, &err)) {
        assert_int_equal(l.n, 0);
        assert_int_equal(err.code, ERR_INPUT);
        buf_addf(&b, "!%s", err.text);
    }
    for (int i = 0; i < l.n; i++)
        buf_addf(&b, "%s%s", i ? " " : "", l.name[i]);
    nodelist_clear(&l);
    return buf_detach(&b);
}

static void test_expand(void **state)
{
    static const char *const want[][2] = {
        {"n1", "n1"},
        {"n1,m2", "n1 m2"},
        {"n[1-3]", "n1 n2 n3"},
        {"n[09-11]", "n09 n10 n11"},
        {"n[1-2,5,8-9]", "n1 n2 n5 n8 n9"},
        {"n[1,01,001]", "n1 n01 n001"},
        {"n[01-2]", "n01 n02"},
        {"n[98-101]", "n98 n99 n100 n101"},
        {"n[08-10],x", "n08 n09 n10 x"},
        {"rack[0-1]node[0-2]", "rack0node0 rack0node1 rack0node2 rack1node0 rack1node1 rack1node2"},
        {"n[1-2]-ib", "n1-ib n2-ib"},
        {"n[1-2].a.example,b_c", "n1.a.example n2.a.example b_c"},
        {"n1,n1", "n1 n1"},
        {"[1-2]", "1 2"},
        {"10.0.0.[9-10]", "10.0.0.9 10.0.0.10"},
        {"n[000000000000000007]", "n000000000000000007"},
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char *got = expand(want[i][0]);

        assert_string_equal(got, want[i][1]);
        free(got);
    }
}

static void test_refused(void **state)
{
    /* text, column, a word of the reason */
    static const struct {
        const char *text;
        int column;
        const char *why;
    } want[] = {
        {"n[1-3", 2, "never closed"},    {"n1]", 3, "without a '['"},
        {"n[3-1]", 5, "backwards"},      {"n[]", 3, "no number"},
        {"n[a-c]", 3, "no number"},      {"n 1", 2, "blank"},
        {"n[1-65537]", 3, "65536"},      {"n[1-2]:4", 7, "no host name has"},
        {"fe80::1", 5, "no host name"},  {"user@n1", 5, "no host name"},
        {"bgl[000x111]", 8, "does not belong"}, {"", 1, "empty name"},
        {"n1,", 4, "empty name"},        {",n1", 1, "empty name"},
        {"n1,,n2", 4, "empty name"},     {"n[1-010]", 5, "padded"},
        {"n[001-02]", 7, "padded"},      {"n[[1]]", 3, "no number"},
        {"n[1", 2, "never closed"},      {"n[1,", 2, "never closed"},
        {"n[1-", 2, "never closed"},     {"-n", 1, "begins with '-'"},
        {"n[1,2-]", 7, "no number"},     {"n[-1]", 3, "no number"},
        {"a[0-255]b[0-256]", 1, "65536"},  {"n[1234567890123456789]", 3, "18 digits"},
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char *got = expand(want[i].text), prefix[32];

        snprintf(prefix, sizeof prefix, "!column %d: ", want[i].column);
        if (strncmp(got, prefix, strlen(prefix)) != 0 || !strstr(got, want[i].why))
            fail_msg("\"%s\" gave: %s", want[i].text, got);
        free(got);
    }
}

static void test_column_and_keep(void **state)
{
    struct nodelist l = {0};
    struct err err = ERR_INIT;

    assert_int_equal(nodelist_expand(&l, "a", 1, 1, &err), 0);
    assert_int_equal(nodelist_expand(&l, "b,c[", 4, 11, &err), -1);
    assert_non_null(strstr(err.text, "column 14: "));
    assert_int_equal(l.n, 1); /* what was there stays, nothing of the bad list does */
    assert_string_equal(l.name[0], "a");
    nodelist_clear(&l);
}

static void test_limit(void **state)
{
    struct nodelist l = {0};
    struct err err = ERR_INIT;

    assert_int_equal(nodelist_expand(&l, "a[0-255]b[0-255]", 16, 1, &err), 0);
    assert_int_equal(l.n, 65536);
    assert_string_equal(l.name[65535], "a255b255");
    nodelist_clear(&l);
    assert_int_equal(nodelist_expand(&l, "n[1-65536],m", 12, 1, &err), -1);
    assert_non_null(strstr(err.text, "more than 65536 names"));
    nodelist_clear(&l);
}

static void check_print(const char *names, const char *want)
{
    char *copy = strdup(names), *save = NULL, *list[64];
    struct buf out = BUF_INIT;
    int n = 0;

    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        list[n++] = w;
    nodelist_print(list, n, &out);
    assert_string_equal(buf_str(&out), want);
    buf_clear(&out);
    free(copy);
}

static void test_print(void **state)
{
    check_print("", "");
    check_print("n1", "n1");
    check_print("n1 n2 n3 n5", "n[1-3,5]");
    check_print("n01 n02 n10 n7", "n[7,01-02,10]");
    check_print("n9 n10 n11", "n[9-11]");
    check_print("n09 n10", "n[09-10]");
    check_print("n099 n100 n99", "n[99,099-100]");
    check_print("n1 m1 n2", "n[1-2],m1");
    check_print("n1-ib n2-ib", "n[1-2]-ib");
    check_print("n1 n1 n2", "n[1,1-2]");
    check_print("rack0node0 rack0node1 rack1node0 rack1node1", "rack[0-1]node[0-1]");
    check_print("r0n0 r0n1 r1n0", "r0n[0-1],r1n0");
    check_print("n1.dc2 n2.dc2", "n[1-2].dc2");
    check_print("login 10.0.0.1 10.0.0.2", "login,10.0.0.[1-2]");
}

static int name_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The law, on names made from small digits so that they collide: expand(print(x)) is x as a multiset. */
static void test_law(void **state)
{
    uint32_t r = 12345;

    for (int round = 0; round < 300; round++) {
        char *name[40];
        struct buf out = BUF_INIT;
        struct nodelist l = {0};
        struct err err = ERR_INIT;
        int n = 0;

        for (; n < 40; n++) {
            int v[4];

            for (int k = 0; k < 4; k++) {
                r = r * 1664525u + 1013904223u;
                v[k] = (int)(r >> 24);
            }
            name[n] = xasprintf("n%0*d%s%0*d%s", v[0] % 3 + 1, v[1] % 12, v[0] & 64 ? "-r" : ".",
                                v[2] % 2 + 1, v[3] % 3, v[0] & 128 ? "" : "x");
        }
        nodelist_print(name, n, &out);
        if (nodelist_expand(&l, out.data, out.len, 1, &err))
            fail_msg("%s: %s", out.data, err.text);
        assert_int_equal(l.n, n);
        qsort(name, (size_t)n, sizeof *name, name_order);
        qsort(l.name, (size_t)n, sizeof *l.name, name_order);
        for (int i = 0; i < n; i++) {
            assert_string_equal(l.name[i], name[i]);
            free(name[i]);
        }
        nodelist_clear(&l);
        buf_clear(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_column_and_keep),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_law),
    };

    return cmocka_run_group_tests_name("nodelist", tests, NULL, NULL);
}
