/* launcher/msg.c and launcher/spawn.c: what travels between front end and agent. */
#include "launcher/msg.h"
#include "launcher/spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void frame_bytes(void **state)
{
    struct buf b = BUF_INIT;
    /* length 5 + 3, type 3, epoch 0x01020304, all little-endian, then the payload */
    static const uint8_t want[] = {8, 0, 0, 0, 3, 4, 3, 2, 1, 'a', 0, 'c'};

    assert_int_equal(MSG_OUTPUT, 3);
    msg_put(&b, MSG_OUTPUT, 0x01020304, "a\0c", 3);
    assert_int_equal(b.len, sizeof want);
    assert_memory_equal(b.data, want, sizeof want);
    buf_clear(&b);
}

static void frames_in_any_pieces(void **state)
{
    struct buf b = BUF_INIT;

    msg_put(&b, MSG_PING, 1, "12345678", 8);
    msg_put(&b, MSG_END, 2, NULL, 0);
    msg_put(&b, MSG_STDIN, 3, "0000xyz", 7);
    for (size_t piece = 1; piece <= b.len; piece++) {
        struct msg_decoder d = {BUF_INIT, 0};
        struct msg m;
        int seen = 0;

        for (size_t at = 0; at < b.len; at += piece) {
            msg_feed(&d, b.data + at, b.len - at < piece ? b.len - at : piece);
            while (msg_next(&d, &m, NULL) == 1) {
                static const enum msg_type type[] = {MSG_PING, MSG_END, MSG_STDIN};
                static const char *const body[] = {"12345678", "", "0000xyz"};

                assert_in_range(seen, 0, 2);
                assert_int_equal(m.type, type[seen]);
                assert_int_equal(m.epoch, seen + 1);
                assert_int_equal(m.len, strlen(body[seen]));
                assert_memory_equal(m.data, body[seen], m.len);
                seen++;
            }
        }
        assert_int_equal(seen, 3);
        msg_decoder_clear(&d);
    }
    buf_clear(&b);
}

static int next_of(const uint8_t *data, size_t n, struct err *err)
{
    struct msg_decoder d = {BUF_INIT, 0};
    struct msg m;
    int rc;

    msg_feed(&d, data, n);
    rc = msg_next(&d, &m, err);
    msg_decoder_clear(&d);
    return rc;
}

static void what_is_not_ours(void **state)
{
    struct err err = ERR_INIT;

    assert_int_equal(next_of((const uint8_t[]){4, 0, 0, 0, 1, 0, 0, 0, 0}, 9, &err),
                     -1); /* too short */
    assert_int_equal(err.code, ERR_NODE);
    assert_int_equal(next_of((const uint8_t[]){1, 0, 64, 0, 1, 0, 0, 0, 0}, 9, &err),
                     -1); /* 4 MiB + 1 */
    assert_int_equal(next_of((const uint8_t[]){0, 0, 64, 0, 1, 0, 0, 0, 0}, 9, &err),
                     0); /* 4 MiB */
    assert_int_equal(next_of((const uint8_t[]){5, 0, 0, 0, 0, 0, 0, 0, 0}, 9, &err),
                     -1); /* type 0 */
    assert_int_equal(next_of((const uint8_t[]){5, 0, 0, 0, MSG_END + 1, 0, 0, 0, 0}, 9, &err), -1);
    assert_int_equal(next_of((const uint8_t *)"bash: ds-agent", 14, &err), -1);
}

static char *node_argv[] = {"/bin/prog", "a b", "", "$x\n=", NULL};
static char *node_env[] = {"A=1", "B=x=y z", "GONE", NULL};
static int node_of[] = {0, 0, 1};

static struct spawn example(void)
{
    static struct spawn_rank rank[] = {{0, 0, 2, "0-1"}, {1, 1, 0, ""}};
    struct spawn s = {.job_id = "j1",
                      .host = "n0",
                      .restarts = 2,
                      .world = 3,
                      .nodes = 2,
                      .node = 0,
                      .node_of = node_of,
                      .address = "10.0.0.1",
                      .interface = "eth0",
                      .master_addr = "10.0.0.9",
                      .master_port = 29500,
                      .grace_ms = 3000,
                      .ping_limit_ms = 10000,
                      .check_ms = 60000,
                      .engine = 1,
                      .pass_local_rank = 1,
                      .stdin_rank = 1,
                      .argv = node_argv,
                      .argc = 4,
                      .rank_program = "/opt/ds-rank",
                      .cwd = "/tmp",
                      .umask = 027,
                      .env = node_env,
                      .nenv = 3,
                      .job = (uint8_t *)"[run]\nseed = 1\n",
                      .job_len = 15,
                      .rank = rank,
                      .nranks = 2,
                      .devices = "4,GPU-a",
                      .rdma = "mlx5_0:1",
                      .max_restarts = 7,
                      .run_id = "run 1",
                      .role = "trainer",
                      .core_bytes = 1234567890123,
                      .venv = "/opt/venv/bin/activate",
                      .nlate = 2};

    memset(s.key, 0xab, sizeof s.key);
    return s;
}

static void spawn_survives(void **state)
{
    struct spawn in = example(), out;
    struct buf b = BUF_INIT, again = BUF_INIT;

    spawn_put(&b, &in);
    assert_int_equal(spawn_get(&out, b.data, b.len, NULL), 0);
    assert_string_equal(out.job_id, "j1");
    assert_string_equal(out.host, "n0");
    assert_int_equal(out.world, 3);
    assert_int_equal(node_of_rank(out.node_runs.data, out.node_runs.len, 1), 0);
    assert_int_equal(node_of_rank(out.node_runs.data, out.node_runs.len, 2), 1);
    assert_int_equal(node_of_rank(out.node_runs.data, out.node_runs.len, 3), -1);
    assert_string_equal(out.argv[3], "$x\n=");
    assert_null(out.argv[4]);
    assert_string_equal(out.rank_program, "/opt/ds-rank");
    assert_string_equal(out.env[1], "B=x=y z");
    assert_int_equal(out.umask, 027);
    assert_int_equal(out.key[31], 0xab);
    assert_int_equal(out.job_len, 15);
    assert_int_equal(out.rank[0].threads, 2);
    assert_string_equal(out.rank[0].cpus, "0-1");
    assert_string_equal(out.devices, "4,GPU-a");
    assert_string_equal(out.rdma, "mlx5_0:1");
    assert_int_equal(out.max_restarts, 7);
    assert_string_equal(out.run_id, "run 1");
    assert_string_equal(out.role, "trainer");
    assert_int_equal(out.core_bytes, 1234567890123);
    assert_string_equal(out.venv, "/opt/venv/bin/activate");
    assert_int_equal(out.nlate, 2);
    spawn_put(&again, &out);
    assert_int_equal(again.len, b.len);
    assert_memory_equal(again.data, b.data, b.len);
    spawn_clear(&out);
    spawn_clear(&out);
    buf_clear(&b);
    buf_clear(&again);
}

static void spawn_cut_anywhere(void **state)
{
    struct spawn in = example(), out;
    struct buf b = BUF_INIT;

    spawn_put(&b, &in);
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(spawn_get(&out, b.data, n, NULL), -1);
    buf_addc(&b, 0);
    assert_int_equal(spawn_get(&out, b.data, b.len, NULL), -1);
    buf_clear(&b);
}

static int roundtrip(const struct spawn *in)
{
    struct spawn out;
    struct buf b = BUF_INIT;
    int rc;

    spawn_put(&b, in);
    rc = spawn_get(&out, b.data, b.len, NULL);
    if (rc == 0)
        spawn_clear(&out);
    buf_clear(&b);
    return rc;
}

static void spawn_contradictions(void **state)
{
    struct spawn s = example();
    struct spawn_rank twice[] = {{0, 0, -1, ""}, {1, 0, -1, ""}}, other[] = {{2, 0, -1, ""}},
                      beyond[] = {{3, 0, -1, ""}};

    assert_int_equal(roundtrip(&s), 0);
    s.rank = twice;
    assert_int_equal(roundtrip(&s), -1);
    s.rank = other;
    s.nranks = 1;
    assert_int_equal(roundtrip(&s), -1);
    s.rank = beyond;
    assert_int_equal(roundtrip(&s), -1);
    s = example();
    s.argc = 0;
    assert_int_equal(roundtrip(&s), -1);
    s = example();
    s.node = 2;
    assert_int_equal(roundtrip(&s), -1);
}

static void hello_survives(void **state)
{
    struct hello_iface iface[] = {{"eth0", "10.0.0.1", 24, 0, "mlx5_0:1"}, {"lo", "127.0.0.1", 8, 1, ""}};
    struct topo_cpu cpus[] = {{0, 0, 0, 0}, {1, 0, 0, 0}};
    struct hello in = {.build_id = (char *)build_id(),
                       .machine = "x86_64",
                       .kernel = "6.1",
                       .hostname = "n0",
                       .boot_id = "b",
                       .cwd = "/home/x",
                       .pid = 12,
                       .cores = 2,
                       .cpus = "0-1",
                       .mem_bytes = 5ull << 32,
                       .mem_available_bytes = 4ull << 32,
                       .devices = 1,
                       .port = 40000,
                       .iface = iface,
                       .nifaces = 2,
                       .topo = {cpus, 2, NULL, 0},
                       .device_mask = "MIG-a",
                       .masked = 1,
                       .toward = "10.0.0.1"};
    struct hello out;
    struct err err = ERR_INIT;
    struct buf b = BUF_INIT;

    hello_put(&b, &in);
    assert_int_equal(hello_get(&out, b.data, b.len, &err), 0);
    assert_string_equal(out.iface[0].address, "10.0.0.1");
    assert_int_equal(out.iface[1].loopback, 1);
    assert_true(out.mem_bytes == 5ull << 32);
    assert_int_equal(out.topo.n, 2);
    assert_string_equal(out.iface[0].rdma, "mlx5_0:1");
    assert_string_equal(out.device_mask, "MIG-a");
    assert_int_equal(out.masked, 1);
    assert_string_equal(out.toward, "10.0.0.1");
    hello_clear(&out);
    buf_reset(&b);
    in.build_id = "0.0.0-other";
    hello_put(&b, &in);
    assert_int_equal(hello_get(&out, b.data, b.len, &err), -1);
    assert_non_null(strstr(err.text, "0.0.0-other"));
    assert_non_null(strstr(err.text, build_id()));
    buf_clear(&b);
}

static void cpu_lists(void **state)
{
    static const char *const bad[] = {
        "a", "1-", "-1", "3-1", "1,,2", "1,", ",1", "16", "0-16", "1 2", "99999999999999999999"};
    uint8_t set[16];
    struct buf b = BUF_INIT;

    assert_int_equal(cpus_parse("0-2,5,15\n", set, 16), 0);
    assert_memory_equal(set, ((uint8_t[16]){1, 1, 1, 0, 0, 1, [15] = 1}), 16);
    cpus_print(set, 16, &b);
    assert_string_equal(b.data, "0-2,5,15");
    assert_int_equal(cpus_parse("", set, 16), 0);
    assert_memory_equal(set, ((uint8_t[16]){0}), 16);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(cpus_parse(bad[i], set, 16), -1);
    for (int v = 0; v < 4096; v++) { /* parse(print(x)) = x */
        uint8_t in[12], out[12];

        for (int i = 0; i < 12; i++)
            in[i] = v >> i & 1;
        buf_reset(&b);
        cpus_print(in, 12, &b);
        assert_int_equal(cpus_parse(buf_str(&b), out, 12), 0);
        assert_memory_equal(in, out, 12);
    }
    buf_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frame_bytes),        cmocka_unit_test(frames_in_any_pieces),
        cmocka_unit_test(what_is_not_ours),   cmocka_unit_test(spawn_survives),
        cmocka_unit_test(spawn_cut_anywhere), cmocka_unit_test(spawn_contradictions),
        cmocka_unit_test(hello_survives),     cmocka_unit_test(cpu_lists),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
