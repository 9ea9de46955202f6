/* Ranks onto processors, on a machine written down as a tree like /sys: two sockets of two NUMA nodes of four
 * cores; the second processor of core c is c + 16. Every expected value is worked by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/base/buf.h"
#include "launcher/binding.h"
#include "launcher/spawn.h"
#include "launcher/topo_hwloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char sys_dir[] = "/tmp/ds-sys.XXXXXX";

static void put(const char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(const char *text, const char *fmt, ...)
{
    char path[512], rest[256];
    va_list ap;
    FILE *f;

    va_start(ap, fmt);
    vsnprintf(rest, sizeof rest, fmt, ap);
    va_end(ap);
    snprintf(path, sizeof path, "%s/%s", sys_dir, rest);
    for (char *p = path + sizeof sys_dir; (p = strchr(p, '/')); p++) {
        *p = 0;
        assert_true(!mkdir(path, 0777) || errno == EEXIST);
        *p = '/';
    }
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%s\n", text);
    fclose(f);
}

static void gpu(const char *bus, const char *class, const char *numa)
{
    put("0x10de", "bus/pci/devices/%s/vendor", bus);
    put(class, "bus/pci/devices/%s/class", bus);
    put(numa, "bus/pci/devices/%s/numa_node", bus);
}

static int make_machine(void **state)
{
    char text[64];
    (void)state;

    if (!mkdtemp(sys_dir))
        return -1;
    for (int c = 0; c < 32; c++) {
        snprintf(text, sizeof text, "%d,%d", c % 16, c % 16 + 16);
        put(text, "devices/system/cpu/cpu%d/topology/thread_siblings_list", c);
        put(c % 16 < 8 ? "0" : "1", "devices/system/cpu/cpu%d/topology/physical_package_id", c);
    }
    put("0-3", "devices/system/node/online");
    for (int m = 0; m < 4; m++) {
        snprintf(text, sizeof text, "%d-%d,%d-%d", 4 * m, 4 * m + 3, 4 * m + 16, 4 * m + 19);
        put(text, "devices/system/node/node%d/cpulist", m);
    }
    put("", "class/net/ib0/device/infiniband/mlx5_0/ports/1/state");
    put("0", "class/net/ib0/dev_port");
    put("", "class/net/ib1/device/infiniband/mlx5_1/ports/2/state");
    put("1", "class/net/ib1/dev_port");
    put("0", "class/net/eth0/dev_port");
    gpu("0000:07:00.0", "0x030200", "1");
    gpu("0000:0f:00.0", "0x030200", "0");
    gpu("0000:0f:00.1", "0x040300", "0"); /* its sound */
    gpu("0000:47:00.0", "0x030000", "3");
    gpu("0001:01:00.0", "0x030200", "2");
    return 0;
}

static int drop_machine(void **state)
{
    char *cmd = xasprintf("rm -rf %s", sys_dir);
    int rc = system(cmd);
    (void)state;

    free(cmd);
    return rc;
}

static struct topo machine(const char *allowed)
{
    uint8_t set[TOPO_CPUS];
    struct topo t;

    assert_int_equal(cpus_parse(allowed, set, TOPO_CPUS), 0);
    topo_read(&t, sys_dir, set);
    return t;
}

/* Ranks first .. first + n - 1 of total; want: "CPUS CORES NUMA" of each, separated by blanks. */
static void check(const char *allowed, enum bind_to to, const char *list, int first, int total, int n,
                  const int *near, const char *want)
{
    struct binding_ask ask = {to, list};
    struct binding_rank out[64];
    struct err err = ERR_INIT;
    struct buf have = BUF_INIT;
    struct topo t = machine(allowed);

    if (binding_make(&t, &ask, first, total, n, near, out, &err))
        buf_addf(&have, "error: %s", err.text);
    else
        for (int i = 0; i < n; i++)
            buf_addf(&have, "%s%s/%d/%s", i ? " " : "", out[i].cpus, out[i].cores, out[i].numa);
    if (strncmp(want, "error: ", 7) ? strcmp(buf_str(&have), want) : !strstr(buf_str(&have), want + 7))
        fail_msg("have: %s\nwant: %s", buf_str(&have), want);
    binding_clear(out, n);
    buf_clear(&have);
    topo_clear(&t);
}

static void cores(void **state)
{
    (void)state;
    check("0-31", BIND_AUTO, NULL, 0, 4, 4, NULL,
          "0-3,16-19/4/0 4-7,20-23/4/1 8-11,24-27/4/2 12-15,28-31/4/3");
    check("0-31", BIND_CORE, NULL, 0, 3, 3, NULL, "0-5,16-21/6/0-1 6-10,22-26/5/1-2 11-15,27-31/5/2-3");
    check("2-5,18-21", BIND_CORE, NULL, 0, 2, 2, NULL, "2-3,18-19/2/0 4-5,20-21/2/1"); /* taskset */
    check("3,4,20", BIND_CORE, NULL, 0, 2, 2, NULL, "3/1/0 4,20/1/1"); /* half of core 3 */
    check("0-31", BIND_AUTO, NULL, 2, 4, 2, NULL, "8-11,24-27/4/2 12-15,28-31/4/3"); /* two agents */
    check("0-31", BIND_NONE, NULL, 0, 4, 4, NULL, "/4/ /4/ /4/ /4/");
}

static void lists(void **state)
{
    (void)state;
    check("0-31", BIND_AUTO, "0,2-4,6", 0, 2, 2, NULL, "0,2-3/3/0 4,6/2/1");
    check("0-31", BIND_CORE, "0-1,16", 0, 2, 2, NULL, "0,16/1/0 1/1/0");
    check("0-31", BIND_NUMA, "2-5", 0, 2, 2, NULL, "2-3/2/0 4-5/2/1");
    check("0-31", BIND_CORE, "0,2-4,6", 0, 6, 6, NULL, "error: 5 cores for 6 ranks");
    check("0-3", BIND_AUTO, "2-5,40", 0, 1, 1, NULL, "error: ranks may not use 4-5,40 here, only 0-3");
    check("0-31", BIND_AUTO, "2-", 0, 1, 1, NULL, "error: not like 0,2-4,6");
}

static void domains(void **state)
{
    (void)state;
    check("0-31", BIND_NUMA, NULL, 0, 2, 2, NULL, "0-3,16-19/4/0 8-11,24-27/4/2");
    check("0-31", BIND_NUMA, NULL, 0, 5, 5, NULL,
          "0-3,16-19/2/0 0-3,16-19/2/0 4-7,20-23/4/1 8-11,24-27/4/2 12-15,28-31/4/3");
    check("0-31", BIND_SOCKET, NULL, 0, 3, 3, NULL,
          "0-7,16-23/4/0-1 0-7,16-23/4/0-1 8-15,24-31/8/2-3");
    check("4-9", BIND_SOCKET, NULL, 0, 2, 2, NULL, "4-7/4/1 8-9/2/2");
    check("0", BIND_NUMA, NULL, 0, 3, 3, NULL, "0/1/0 0/1/0 0/1/0"); /* at least one thread */
}

static void more_ranks_than_cores(void **state)
{
    (void)state;
    check("0-31", BIND_CORE, NULL, 0, 17, 17, NULL, "error: 16 cores for 17 ranks");
    check("0-1,16", BIND_AUTO, NULL, 0, 3, 3, NULL, "0/1/0 16/1/0 1/1/0"); /* a processor each */
    check("0-1,16", BIND_AUTO, NULL, 0, 4, 4, NULL, "/1/ /1/ /1/ /1/");
}

static void near_gpus(void **state)
{
    struct topo t = machine("0-31");
    (void)state;

    assert_int_equal(t.ngpus, 4);
    check("0-31", BIND_AUTO, NULL, 0, 4, 4, t.gpu_numa,
          "4-7,20-23/4/1 0-3,16-19/4/0 12-15,28-31/4/3 8-11,24-27/4/2");
    check("0-31", BIND_NUMA, NULL, 0, 2, 2, t.gpu_numa, "4-7,20-23/4/1 0-3,16-19/4/0");
    check("0-31", BIND_NUMA, NULL, 0, 2, 2, (int[]){3, 3}, "12-15,28-31/2/3 12-15,28-31/2/3");
    check("0-31", BIND_SOCKET, NULL, 0, 2, 2, (int[]){3, 0}, "8-15,24-31/8/2-3 0-7,16-23/8/0-1");
    /* not known of one: in turn */
    check("0-31", BIND_CORE, NULL, 0, 2, 2, (int[]){3, -1}, "0-7,16-23/8/0-1 8-15,24-31/8/2-3");
    /* the GPU's node has no processor that we may use */
    check("0-3", BIND_NUMA, NULL, 0, 1, 1, (int[]){3}, "0-3/4/0");
    topo_clear(&t);
}

/* What a kernel without these files is taken for: each processor a core. */
static void bare(void **state)
{
    struct binding_ask ask = {BIND_AUTO, NULL};
    struct binding_rank out[2];
    uint8_t set[TOPO_CPUS] = {1, 1, 1, [4000] = 1};
    struct topo t;
    struct err err = ERR_INIT;
    (void)state;

    topo_read(&t, "/nonexistent", set);
    assert_int_equal(binding_make(&t, &ask, 0, 2, 2, NULL, out, &err), 0);
    assert_string_equal(out[0].cpus, "0-1");
    assert_string_equal(out[1].cpus, "2,4000");
    assert_int_equal(t.ngpus, 0);
    binding_clear(out, 2);
    topo_clear(&t);
}

static void rdma(void **state)
{
    static const char *const want[][2] = {{"ib0", "mlx5_0:1"}, {"ib1", "mlx5_1:2"}, {"eth0", ""}, {"nothing", ""}};
    (void)state;

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char *have = topo_rdma(sys_dir, want[i][0]);

        assert_string_equal(have, want[i][1]);
        free(have);
    }
}

static void on_the_wire(void **state)
{
    struct topo t = machine("0-31"), u;
    struct buf b = BUF_INIT;
    struct reader r;
    (void)state;

    topo_put(&b, &t);
    r = reader_of(b.data, b.len);
    topo_get(&r, &u);
    assert_int_equal(reader_done(&r), 1);
    assert_int_equal(u.n, 32);
    assert_memory_equal(u.cpu, t.cpu, (size_t)t.n * sizeof *t.cpu);
    assert_int_equal(u.ngpus, 4);
    assert_memory_equal(u.gpu_numa, ((int[]){1, 0, 3, 2}), 4 * sizeof(int));
    topo_clear(&u);
    for (size_t n = 0; n < b.len; n++) { /* cut anywhere: refused */
        r = reader_of(b.data, n);
        topo_get(&r, &u);
        assert_int_equal(reader_done(&r), 0);
        topo_clear(&u);
    }
    buf_clear(&b);
    topo_clear(&t);
}

/* The same machine as hwloc describes it (numbers processors in the order of cores), and this one. */
static void peer(void **state)
{
    uint8_t set[TOPO_CPUS];
    struct topo t, u;
    struct err err = ERR_INIT;
    (void)state;

    setenv("HWLOC_PLUGINS_BLACKLIST", "hwloc_pci.so", 1); /* libpciaccess leaks */
    if (topo_hwloc(&t, "package:2 numa:2 core:4 pu:2", &err)) {
        assert_non_null(strstr(err.text, "no hwloc"));
        skip();
    }
    assert_int_equal(t.n, 32);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(t.cpu[i].cpu, i);
        assert_int_equal(t.cpu[i].core, i / 2 * 2);
        assert_int_equal(t.cpu[i].numa, i / 8);
        assert_int_equal(t.cpu[i].socket, i / 16);
    }
    topo_clear(&t);
    assert_int_equal(topo_hwloc(&t, NULL, &err), 0);
    topo_allowed(set);
    topo_read(&u, "/sys", set);
    assert_int_equal(u.n, t.n);
    assert_memory_equal(u.cpu, t.cpu, (size_t)t.n * sizeof *t.cpu);
    topo_clear(&t);
    topo_clear(&u);
    assert_int_equal(topo_hwloc(&t, "nothing", &err), -1);
    assert_int_equal(topo_hwloc(&t, "what:2 ever", &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores),     cmocka_unit_test(lists), cmocka_unit_test(domains),
        cmocka_unit_test(more_ranks_than_cores), cmocka_unit_test(near_gpus), cmocka_unit_test(bare),
        cmocka_unit_test(rdma), cmocka_unit_test(on_the_wire), cmocka_unit_test(peer)};

    return cmocka_run_group_tests_name("binding", tests, make_machine, drop_machine);
}
