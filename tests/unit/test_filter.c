/* --include, --exclude, --num_nodes and --num_gpus, against results worked out by hand. */
#include "hostfile/hostfile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char file[] = "w0 slots=4\nw1 slots=4 devices=4-7\nx slots=2\n[::1]:2\n";

/* What is left as "host:slot=device,...", joined by blanks; "!" and the text when refused (then the
 * list must be as it was). Owned by the caller. */
static char *filter(const struct host_filter *f)
{
    struct hosts h = {0};
    struct err err = ERR_INIT;
    struct buf b = BUF_INIT;

    assert_int_equal(hostfile_parse(&h, "F", file, sizeof file - 1, &err), 0);
    if (hosts_filter(&h, f, &err)) {
        assert_int_equal(err.code, ERR_INPUT);
        assert_int_equal(h.n, 4);
        assert_int_equal(hosts_total(&h), 12);
        buf_addf(&b, "!%s", err.text);
        hosts_clear(&h);
        return buf_detach(&b);
    }
    for (int i = 0; i < h.n; i++) {
        buf_addf(&b, "%s%s:", i ? " " : "", h.host[i].name);
        for (int s = 0; s < h.host[i].nslots; s++)
            buf_addf(&b, "%s%d=%d", s ? "," : "", h.host[i].slot[s], h.host[i].device[s]);
    }
    hosts_clear(&h);
    return buf_detach(&b);
}

static void check(const char *include, const char *exclude, int nodes, int slots, const char *want)
{
    struct host_filter f = {.include = include, .exclude = exclude, .num_nodes = nodes, .num_slots = slots};
    char *got = filter(&f);

    assert_string_equal(got, want);
    free(got);
}

static void refuse(const char *include, const char *exclude, int nodes, int slots, const char *why)
{
    struct host_filter f = {.include = include, .exclude = exclude, .num_nodes = nodes, .num_slots = slots};
    char *got = filter(&f);

    if (got[0] != '!' || !strstr(got, why))
        fail_msg("include %s exclude %s gave: %s", include ? include : "-", exclude ? exclude : "-",
                 got);
    free(got);
}

#define W0 "w0:0=0,1=1,2=2,3=3"
#define W1 "w1:0=4,1=5,2=6,3=7"
#define X "x:0=0,1=1"
#define V6 "::1:0=0,1=1"

static void test_include(void **state)
{
    check("w0", NULL, -1, -1, W0);
    check("W0", NULL, -1, -1, W0);
    check("w0:3,1", NULL, -1, -1, "w0:1=1,3=3");
    check("x@w0:0", NULL, -1, -1, "w0:0=0 " X); /* the file's order */
    check("w0:0@w0:2", NULL, -1, -1, "w0:0=0,2=2");
    check("w0:1@w0", NULL, -1, -1, W0);
    check("w[0-1]:0-1", NULL, -1, -1, "w0:0=0,1=1 w1:0=4,1=5");
    check("w[0,1]:2", NULL, -1, -1, "w0:2=2 w1:2=6");
    check("w1:device=5,7", NULL, -1, -1, "w1:1=5,3=7");
    check("w1:0,device=6-7", NULL, -1, -1, "w1:0=4,2=6,3=7");
    check("[::1]:1", NULL, -1, -1, "::1:1=1");
    check("[::1]", NULL, -1, -1, V6);
    check("", "", -1, -1, W0 " " W1 " " X " " V6);
}

static void test_exclude(void **state)
{
    check(NULL, "w0", -1, -1, W1 " " X " " V6);
    check(NULL, "w0:0-2@x@[::1]:0,1", -1, -1, "w0:3=3 " W1);
    check(NULL, "w1:device=4", -1, -1, W0 " w1:1=5,2=6,3=7 " X " " V6);
    check(NULL, "x:0@x:1", -1, -1, W0 " " W1 " " V6);
}

static void test_counts(void **state)
{
    check(NULL, NULL, 2, -1, W0 " " W1);
    check(NULL, NULL, -1, 2, "w0:0=0,1=1 w1:0=4,1=5 " X " " V6);
    check(NULL, NULL, 2, 3, "w0:0=0,1=1,2=2 w1:0=4,1=5,2=6");
    refuse(NULL, NULL, 5, -1, "--num_nodes is 5 but F has 4 hosts");
    refuse(NULL, NULL, -1, 3, "--num_gpus is 3 but host x has 2 slots");
    refuse(NULL, NULL, 0, -1, "--num_nodes is 0");
    refuse(NULL, NULL, -1, 0, "--num_gpus is 0");
}

/* Where no number of slots is written, the command line may say it. */
static void open_slots(void **state)
{
    static const char text[] = "p\nq max_slots=3\nr slots=2\ns devices=7,8\n";
    struct host_filter two = {.num_nodes = 3, .num_slots = 2}, more = {.num_nodes = 2, .num_slots = 4},
                       third = {.num_nodes = 3, .num_slots = 3}, many = {.num_nodes = 1, .num_slots = 1 << 21};
    struct err err = ERR_INIT;
    struct hosts h = {0};

    assert_int_equal(hostfile_parse(&h, "F", text, sizeof text - 1, &err), 0);
    assert_int_equal(hosts_total(&h), 6);
    assert_int_equal(hosts_filter(&h, &more, &err), -1);
    assert_non_null(strstr(err.text, "host q has 3 slots"));
    err = (struct err)ERR_INIT;
    assert_int_equal(hosts_filter(&h, &third, &err), -1);
    assert_non_null(strstr(err.text, "host r has 2 slots"));
    err = (struct err)ERR_INIT;
    assert_int_equal(hosts_filter(&h, &many, &err), -1);
    assert_non_null(strstr(err.text, "--num_gpus is 2097152"));
    assert_int_equal(hosts_filter(&h, &two, NULL), 0);
    assert_int_equal(hosts_total(&h), 6);
    assert_int_equal(h.host[0].slot[1], 1);
    assert_int_equal(h.host[0].device[1], 1);
    hosts_drop(&h, 1);
    assert_int_equal(h.n, 2);
    assert_string_equal(h.host[1].name, "r");
    hosts_clear(&h);
}

static void test_refused(void **state)
{
    refuse("w0", "w1", -1, -1, "both given");
    refuse("w0", NULL, 1, -1, "cannot be combined");
    refuse(NULL, "w0", -1, 1, "cannot be combined");
    refuse("w9", NULL, -1, -1, "no host w9 in F");
    refuse("w0:4", NULL, -1, -1, "host w0 has no slot 4 (it has 4, from 0 to 3)");
    refuse("w1:device=3", NULL, -1, -1, "host w1 has no device 3 (it has 4, from 4 to 7)");
    refuse("w0:", NULL, -1, -1, "column 4: no number");
    refuse("w0@", NULL, -1, -1, "column 4: there is no host name");
    refuse("@w0", NULL, -1, -1, "column 1: there is no host name");
    refuse(":0", NULL, -1, -1, "column 1: there is no host name");
    refuse("w0,w1", NULL, -1, -1, "column 3: a comma between hosts");
    refuse("w0:0:1", NULL, -1, -1, "column 5: a character");
    refuse("w0:1-", NULL, -1, -1, "column 6: no number");
    refuse("w0:2-1", NULL, -1, -1, "column 4: a range that runs backwards");
    refuse("w0:1,1", NULL, -1, -1, "column 6: a number that is given twice");
    refuse("w0:-1", NULL, -1, -1, "column 4: no number");
    refuse("w0: 1", NULL, -1, -1, "column 4: no number");
    refuse("w[0-1", NULL, -1, -1, "column 2: a bracket that is never closed");
    refuse("w0:xdevice=1", NULL, -1, -1, "column 5: device= stands behind");
    refuse("[::1]x", NULL, -1, -1, "column 6: only ':'");
    refuse(NULL, "w[0-1]@x@[::1]", -1, -1, "leaves no slot at all");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_include),
        cmocka_unit_test(test_exclude),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(open_slots),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests_name("filter", tests, NULL, NULL);
}
