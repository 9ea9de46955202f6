/* launcher/rankenv.c: the environment of every rank. Expected values: DESIGN 4.2, worked by hand.
 */
#include "launcher/rankenv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* 5 ranks: 0, 1 on node 0; 2, 3, 4 on node 1, which is ours. */
static int node_of[] = {0, 0, 1, 1, 1};
static struct spawn_rank ranks[3];
static char *no_env[] = {NULL};

static struct spawn node1(void)
{
    struct spawn s = {.job_id = "job7",
                      .host = "n1",
                      .restarts = 4,
                      .world = 5,
                      .nodes = 2,
                      .node = 1,
                      .node_of = node_of,
                      .address = "10.0.0.2",
                      .interface = "",
                      .devices = "",
                      .rdma = "",
                      .run_id = "run 5",
                      .role = "",
                      .venv = "",
                      .max_restarts = 6,
                      .engine = 1,
                      .master_addr = "10.0.0.1",
                      .master_port = 23456,
                      .rank = ranks,
                      .nranks = 3};

    for (int i = 0; i < 3; i++)
        ranks[i] = (struct spawn_rank){2 + i, i, 0, ""};
    return s;
}

static void check(char **env, const char *name, const char *want)
{
    const char *have = rankenv_value(env, name);

    if (!want) {
        assert_null(have);
        return;
    }
    if (!have)
        fail_msg("%s is not set", name);
    assert_string_equal(have, want);
}

static void who_i_am(void **state)
{
    struct spawn s = node1();
    char **env = rankenv_make(&s, 1, 9, 3, "/proc/1/fd/7", 8, no_env);
    static const char *const want[][2] = {
        {"RANK", "3"},
        {"WORLD_SIZE", "5"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "3"},
        {"LOCAL_SIZE", "3"},
        {"NODE_RANK", "1"},
        {"GROUP_RANK", "1"},
        {"CROSS_RANK", "1"},
        {"CROSS_SIZE", "2"},
        {"MASTER_ADDR", "10.0.0.1"},
        {"MASTER_PORT", "23456"},
        {"OMP_NUM_THREADS", "2"}, /* 8 cores, 3 ranks */
        {"DS_JOB_ID", "job7"},
        {"DS_EPOCH", "9"},
        {"DS_AGENT_FD", "3"},
        {"TORCHELASTIC_RUN_ID", "run 5"},
        {"TORCHELASTIC_MAX_RESTARTS", "6"},
        {"TORCHELASTIC_ERROR_FILE", "/proc/1/fd/7"},
        {"GROUP_WORLD_SIZE", "2"},
        {"ROLE_RANK", "3"},
        {"ROLE_WORLD_SIZE", "5"},
        {"ROLE_NAME", "default"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"TORCHELASTIC_USE_AGENT_STORE", NULL},
        {"TORCHELASTIC_RESTART_COUNT", "4"},
        {"CUDA_VISIBLE_DEVICES", NULL},
        {"GLOO_SOCKET_IFNAME", NULL},
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        check(env, want[i][0], want[i][1]);
    rankenv_free(env);
}

/* Ranks of the engine wait briefly before they sleep, unless the user says otherwise; programs are left alone. */
static void waiting_threads(void **state)
{
    char *policy[] = {"OMP_WAIT_POLICY=active", NULL}, *count[] = {"GOMP_SPINCOUNT=7", NULL};
    struct spawn s = node1();
    char **env;

    s.engine = 0;
    env = rankenv_make(&s, 0, 0, -1, NULL, 2, no_env);
    check(env, "GOMP_SPINCOUNT", NULL);
    rankenv_free(env);
    s.engine = 1;
    env = rankenv_make(&s, 0, 0, 3, NULL, 2, no_env);
    check(env, "GOMP_SPINCOUNT", "3000");
    rankenv_free(env);
    env = rankenv_make(&s, 0, 0, 3, NULL, 2, policy);
    check(env, "GOMP_SPINCOUNT", NULL);
    rankenv_free(env);
    env = rankenv_make(&s, 0, 0, 3, NULL, 2, count);
    check(env, "GOMP_SPINCOUNT", "7");
    rankenv_free(env);
}

static void outer_launch_is_scrubbed(void **state)
{
    char *base[] = {"HOME=/h",
                    "DS_JOB_ID=outer",
                    "DS_AGENT_FD=9",
                    "RANK=77",
                    "OMP_NUM_THREADS=64",
                    "GLOO_SOCKET_IFNAME=outer0",
                    "broken",
                    NULL};
    char *plain[] = {"OMP_NUM_THREADS=64", "GLOO_SOCKET_IFNAME=site0", NULL};
    struct spawn s = node1();
    char **env;

    s.interface = "ib0";
    env = rankenv_make(&s, 0, 0, -1, NULL, 2, base);
    check(env, "HOME", "/h");
    check(env, "DS_JOB_ID", "job7");
    check(env, "DS_AGENT_FD", NULL);
    check(env, "RANK", "2");
    check(env, "OMP_NUM_THREADS", "1"); /* 2 cores, 3 ranks: at least one */
    check(env, "GLOO_SOCKET_IFNAME", "ib0");
    check(env, "NCCL_SOCKET_IFNAME", "=ib0"); /* that one, and not ib01 */
    check(env, "TP_SOCKET_IFNAME", "ib0");
    rankenv_free(env);
    env = rankenv_make(&s, 0, 0, -1, NULL, 2, plain); /* the user's own, no launch around us */
    check(env, "OMP_NUM_THREADS", "64");
    check(env, "GLOO_SOCKET_IFNAME", "site0");
    check(env, "UCX_NET_DEVICES", "ib0");
    rankenv_free(env);
    s.rdma = "mlx5_0:1";
    env = rankenv_make(&s, 0, 0, -1, NULL, 2, plain);
    check(env, "UCX_NET_DEVICES", "mlx5_0:1,ib0");
    rankenv_free(env);
    env = rankenv_plain(&s, base);
    check(env, "RANK", NULL);
    check(env, "DS_JOB_ID", NULL);
    check(env, "HOME", "/h");
    rankenv_free(env);
}

static void user_entries(void **state)
{
    char *base[] = {"A=1", "B=2", "PATH=/bin", NULL};
    char *user[] = {"A=x=y \n", "B", "PATH=/opt/bin", "RANK=5", "OMP_NUM_THREADS=7", NULL};
    struct spawn s = node1();
    char **env;
    int paths = 0;

    s.env = user;
    s.nenv = 5;
    env = rankenv_make(&s, 0, 0, -1, NULL, 2, base);
    check(env, "A", "x=y \n");
    check(env, "B", NULL);
    check(env, "PATH", "/opt/bin");
    check(env, "RANK", "2"); /* what the launch is can't be overridden */
    check(env, "OMP_NUM_THREADS", "7");
    for (int i = 0; env[i]; i++)
        paths += strncmp(env[i], "PATH=", 5) == 0;
    assert_int_equal(paths, 1);
    rankenv_free(env);
}

static void devices(void **state)
{
    char *slurm[] = {"CUDA_VISIBLE_DEVICES=4,GPU-aa,6", NULL};
    struct spawn s = node1();
    char **env = rankenv_make(&s, 1, 0, -1, NULL, 2, slurm);

    check(env, "CUDA_VISIBLE_DEVICES", "4,GPU-aa,6"); /* nothing was chosen: what is there stays */
    rankenv_free(env);
    s.devices = "6,4,GPU-aa"; /* for all ranks: LOCAL_RANK is the index */
    env = rankenv_make(&s, 1, 0, -1, NULL, 2, slurm);
    check(env, "CUDA_VISIBLE_DEVICES", "6,4,GPU-aa");
    rankenv_free(env);
}

static void threads(void **state)
{
    struct spawn s = node1();
    char **env;

    ranks[1].cpus = "0-3,8";
    env = rankenv_make(&s, 1, 0, -1, NULL, 64, no_env);
    check(env, "OMP_NUM_THREADS", "5");
    rankenv_free(env);
    ranks[1].threads = 3;
    env = rankenv_make(&s, 1, 0, -1, NULL, 64, no_env);
    check(env, "OMP_NUM_THREADS", "3");
    rankenv_free(env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_i_am),     cmocka_unit_test(waiting_threads), cmocka_unit_test(outer_launch_is_scrubbed),
        cmocka_unit_test(user_entries), cmocka_unit_test(devices),
        cmocka_unit_test(threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
