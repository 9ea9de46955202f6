/* Which addresses are chosen, on machines written down by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LO {"lo", "127.0.0.1", 8, 1, ""}
#define NODE(host, boot, ifaces) \
    {.hostname = host, .boot_id = boot, .iface = ifaces, .nifaces = sizeof ifaces / sizeof ifaces[0]}

static struct hello_iface one[] = {LO, {"docker0", "172.17.0.1", 16, 0, ""}, {"eth0", "192.168.7.1", 24, 0, ""},
                                   {"ib0", "10.1.0.1", 16, 0, ""}};
static struct hello_iface two[] = {LO, {"docker0", "172.17.0.1", 16, 0, ""}, {"ib0", "10.1.0.2", 16, 0, ""},
                                   {"eth9", "192.168.8.2", 24, 0, ""}};
static struct hello_iface virt[] = {LO, {"weird", "192.168.7.1", 24, 0, ""}, {"ib0", "10.1.0.3", 16, 0, ""}};
static struct hello_iface far[] = {LO, {"eth0", "203.0.113.9", 24, 0, ""}};
static struct hello_iface none[] = {LO, {"docker0", "172.17.0.1", 16, 0, ""}};
static const char *const names[] = {"a", "b", "c"};

static void common(void **state)
{
    struct hello h[] = {NODE("a", "1", one), NODE("b", "2", two), NODE("c", "3", virt)};
    const struct hello *p[] = {&h[0], &h[1], &h[2]};
    struct address a[3];
    struct err err = ERR_INIT;
    (void)state;

    assert_int_equal(address_choose(p, names, 2, NULL, a, &err), 0);
    assert_string_equal(a[0].address, "10.1.0.1"); /* eth0 is no network of b's */
    assert_string_equal(a[1].address, "10.1.0.2");
    assert_string_equal(a[1].interface, "ib0");
    address_clear(a, 2);
    assert_int_equal(address_choose(p, names, 3, NULL, a, &err), 0);
    assert_string_equal(a[2].address, "10.1.0.3");
    address_clear(a, 3);
    /* an address that two machines have is none of either's */
    p[1] = &h[2];
    assert_int_equal(address_choose(p, names, 2, NULL, a, &err), 0);
    assert_string_equal(a[0].address, "10.1.0.1");
    address_clear(a, 2);
}

/* Of two networks that all have, that by which the front end came; without one in common, each node's own. */
static void toward(void **state)
{
    static struct hello_iface a0[] = {LO, {"eth0", "10.1.0.1", 24, 0, ""}, {"ib0", "10.2.0.1", 24, 0, "mlx5_0:1"}};
    static struct hello_iface b0[] = {LO, {"eth0", "10.1.0.2", 24, 0, ""}, {"ib0", "10.2.0.2", 24, 0, "mlx5_1:1"}};
    static struct hello_iface a1[] = {LO, {"vpn0", "100.64.0.1", 32, 0, ""}, {"eth0", "10.128.0.1", 32, 0, ""}};
    static struct hello_iface b1[] = {LO, {"vpn0", "100.64.0.2", 32, 0, ""}, {"eth0", "10.128.0.2", 32, 0, ""}};
    struct hello h[] = {NODE("a", "1", a0), NODE("b", "2", b0), NODE("a", "1", a1), NODE("b", "2", b1)};
    const struct hello *p[] = {&h[0], &h[1]}, *q[] = {&h[2], &h[3]};
    struct address a[2];
    struct err err = ERR_INIT;
    (void)state;

    assert_int_equal(address_choose(p, names, 2, NULL, a, &err), 0);
    assert_string_equal(a[0].address, "10.1.0.1");
    address_clear(a, 2);
    h[0].toward = "10.2.0.1";
    h[1].toward = "10.2.0.2";
    assert_int_equal(address_choose(p, names, 2, NULL, a, &err), 0);
    assert_string_equal(a[0].address, "10.2.0.1");
    assert_string_equal(a[1].rdma, "mlx5_1:1");
    address_clear(a, 2);
    h[0].toward = "172.17.0.1"; /* an address that is none of its own: a port that is forwarded */
    assert_int_equal(address_choose(p, names, 2, NULL, a, &err), 0);
    assert_string_equal(a[0].address, "10.1.0.1");
    address_clear(a, 2);
    h[2].toward = "10.128.0.1"; /* /32 addresses, as some clouds give them */
    h[3].toward = "10.128.0.2";
    assert_int_equal(address_choose(q, names, 2, NULL, a, &err), 0);
    assert_string_equal(a[0].address, "10.128.0.1");
    assert_string_equal(a[1].interface, "eth0");
    address_clear(a, 2);
}

static void wanted(void **state)
{
    struct hello h[] = {NODE("a", "1", one), NODE("b", "2", two)};
    const struct hello *p[] = {&h[0], &h[1]};
    struct address a[2];
    struct err err = ERR_INIT;
    (void)state;

    assert_int_equal(address_choose(p, names, 2, "ib0", a, &err), 0);
    assert_string_equal(a[1].address, "10.1.0.2");
    address_clear(a, 2);
    assert_int_equal(address_choose(p, names, 2, "192.168.0.0/16", a, &err), 0);
    assert_string_equal(a[0].interface, "eth0");
    assert_string_equal(a[1].interface, "eth9");
    address_clear(a, 2);
    assert_int_equal(address_choose(p, names, 2, "eth0", a, &err), -1);
    assert_non_null(strstr(err.text, "host b has no address on eth0"));
    address_clear(a, 2);
    assert_int_equal(address_choose(p, names, 2, "10.0.0.0/99", a, &err), -1);
    address_clear(a, 2);
}

/* 4,096 nodes with a docker0 each: the choice may not grow with the square (minutes, then). */
static void many(void **state)
{
    enum { N = 4096 };
    struct hello *h = calloc(N, sizeof *h);
    struct hello_iface(*f)[3] = calloc(N, sizeof *f);
    const struct hello **p = calloc(N, sizeof *p);
    const char **name = calloc(N, sizeof *name);
    struct address *a = calloc(N, sizeof *a);
    char(*text)[3][24] = calloc(N, sizeof *text);
    struct err err = ERR_INIT;
    (void)state;

    for (int m = 0; m < N; m++) {
        snprintf(text[m][0], 24, "10.9.%d.%d", m / 256, m % 256);
        snprintf(text[m][1], 24, "n%d", m);
        f[m][0] = (struct hello_iface)LO;
        f[m][1] = (struct hello_iface){"weird0", "172.17.0.1", 16, 0, ""};
        f[m][2] = (struct hello_iface){"ib0", text[m][0], 16, 0, ""};
        h[m] = (struct hello){.hostname = text[m][1], .boot_id = text[m][1], .iface = f[m], .nifaces = 3};
        p[m] = &h[m];
        name[m] = text[m][1];
    }
    assert_int_equal(address_choose(p, name, N, NULL, a, &err), 0);
    assert_string_equal(a[4095].address, "10.9.15.255");
    assert_string_equal(a[4095].interface, "ib0");
    address_clear(a, N);
    assert_int_equal(address_choose(p, name, N, "weird0", a, &err), -1);
    assert_non_null(strstr(err.text, "172.17.0.1 of host n0 is another"));
    address_clear(a, N);
    free(h);
    free(f);
    free(p);
    free(name);
    free(a);
    free(text);
}

static void one_machine(void **state)
{
    struct hello h[] = {NODE("a", "1", one), NODE("a", "1", one), NODE("b", "1", two)};
    const struct hello *p[] = {&h[0], &h[1], &h[2]};
    struct address a[3];
    struct err err = ERR_INIT;
    (void)state;

    assert_int_equal(address_choose(p, names, 2, NULL, a, &err), 0);
    assert_string_equal(a[0].address, "127.0.0.1");
    assert_string_equal(a[1].address, "127.0.0.1");
    assert_string_equal(a[1].interface, "");
    address_clear(a, 2);
    /* the same kernel, but a network of its own: 127.0.0.1 there is not here */
    assert_int_equal(address_choose(p, names, 3, NULL, a, &err), 0);
    assert_string_equal(a[0].address, "10.1.0.1");
    assert_string_equal(a[2].address, "10.1.0.2");
    address_clear(a, 3);
}

static void apart(void **state)
{
    struct hello h[] = {NODE("a", "1", one), NODE("b", "2", far), NODE("c", "3", none)};
    const struct hello *p[] = {&h[0], &h[1], &h[2]};
    struct address a[3];
    struct err err = ERR_INIT;
    (void)state;

    assert_int_equal(address_choose(p, names, 2, NULL, a, &err), 0);
    assert_string_equal(a[0].address, "192.168.7.1");
    assert_string_equal(a[1].address, "203.0.113.9");
    address_clear(a, 2);
    assert_int_equal(address_choose(p, names, 3, NULL, a, &err), -1);
    assert_non_null(strstr(err.text, "host c"));
    address_clear(a, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(common), cmocka_unit_test(toward), cmocka_unit_test(many),
                                       cmocka_unit_test(wanted),
                                       cmocka_unit_test(one_machine), cmocka_unit_test(apart)};

    return cmocka_run_group_tests_name("address", tests, NULL, NULL);
}
