/* The command line: spelling, values, contradictions, what belongs to the program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/options.h"
#include "launcher/torchlog.h"

#include <stdlib.h>
#include <string.h>

#define MAX 32

struct result {
    struct options o;
    struct buf out, warn;
    struct err err;
    int rc;
};

/* words are separated by blanks */
static struct result parse(const char *line)
{
    struct result r = {0};
    char *copy = xstrdup(line), *argv[MAX], *p;
    int argc = 0;

    for (p = strtok(copy, " "); p && argc < MAX; p = strtok(NULL, " "))
        argv[argc++] = p;
    r.rc = options_parse(&r.o, argc, argv, &r.out, &r.warn, &r.err);
    free(copy);
    return r;
}

static void done(struct result *r)
{
    options_clear(&r->o);
    buf_clear(&r->out);
    buf_clear(&r->warn);
}

static void good(void **state)
{
    struct result r = parse("ds-launch -H hf --num_nodes 2 --num-gpus=4 --master_port 1234 --grace 500ms "
                            "--export A=b=c --export NCCL* --no_local_rank prog --num_nodes 7 -H x");
    (void)state;

    assert_int_equal(r.rc, 0);
    assert_string_equal(r.o.hostfile, "hf");
    assert_int_equal(r.o.num_nodes, 2);
    assert_int_equal(r.o.ranks_per_node, 4);
    assert_int_equal(r.o.master_port, 1234);
    assert_int_equal(r.o.grace_ms, 500);
    assert_int_equal(r.o.ping_limit_ms, -1);
    assert_int_equal(r.o.nexports, 2);
    assert_string_equal(r.o.export[0], "A=b=c");
    assert_int_equal(r.o.no_local_rank, 1);
    assert_int_equal(r.o.argc, 5);
    assert_string_equal(r.o.argv[0], "prog");
    assert_string_equal(r.o.argv[4], "x");
    options_warn_behind(&r.o, &r.warn);
    assert_non_null(strstr(buf_str(&r.warn), "--num_nodes"));
    done(&r);
}

static void plain_words(void **state)
{
    struct result r = parse("ds-launch -Hhf -- -x --hosts");
    (void)state;

    assert_int_equal(r.rc, 0);
    assert_string_equal(r.o.hostfile, "hf");
    assert_int_equal(r.o.argc, 2);
    assert_string_equal(r.o.argv[0], "-x");
    done(&r);
}

static void job_rows(void **state)
{
    struct result r = parse("ds-launch --set run.steps=3 --resume auto j.ini --set a.b=c=d -q");
    (void)state;

    assert_int_equal(r.rc, 0);
    assert_true(options_is_job(r.o.argv[0]));
    assert_int_equal(options_parse_more(&r.o, &r.out, &r.warn, &r.err), 0);
    assert_int_equal(r.o.argc, 1);
    assert_int_equal(r.o.quiet, 1);
    assert_int_equal(r.o.set.n, 3);
    assert_string_equal(r.o.set.row[0].path, "run.steps");
    assert_string_equal(r.o.set.row[0].value, "3");
    assert_string_equal(r.o.set.row[1].path, "run.resume");
    assert_string_equal(r.o.set.row[1].value, "auto");
    assert_string_equal(r.o.set.row[2].value, "c=d");
    done(&r);
}

/* A program behind plan keeps its own flags, a job file there does not have any. */
static void plan_words(void **state)
{
    struct result r = parse("ds-launch plan --hosts local:2 prog --list");
    (void)state;

    assert_int_equal(options_parse_more(&r.o, &r.out, &r.warn, &r.err), 0);
    assert_string_equal(r.o.hosts, "local:2");
    assert_int_equal(r.o.list, 0);
    assert_int_equal(r.o.argc, 3);
    done(&r);
}

/* What a command would ignore is refused: it could be counted on. */
static void no_use(void **state)
{
    static const char *const lines[][2] = {
        {"ds-launch --timeout 5s prog", "--timeout would do nothing in the start of a program"},
        {"ds-launch --timeout 5s prog", "it is for ds-launch exec"},
        {"ds-launch exec --dry-run -- reboot", "--dry-run would do nothing in ds-launch exec"},
        {"ds-launch --venv_script v exec true", "--venv-script"},
        {"ds-launch hosts --tee 3", "for the start of a program or job, ds-launch plan"},
        {"ds-launch ps -H hf", "--hostfile"},
        {"ds-launch kill --grace 1s job", "--grace"},
        {"ds-launch --json prog", "ds-launch plan, ds-launch hosts, ds-launch ps"},
        {"ds-launch --topology core:2 prog", "ds-launch plan"},
        {"ds-launch info --num_gpus 3", "--num-gpus"},
    };
    static const char *const fine[] = {
        "ds-launch hosts -H hf --nnodes 2 --list -q", "ds-launch plan --tee 3 --json --master_port 1 p --timeout 3",
        "ds-launch exec --hosts a --ssh-port 2 --export A --timeout 3s --grace 1s true", "ds-launch ps --json",
        "ds-launch kill --signal INT j", "ds-launch info --settings", "ds-launch --launcher ssh j.ini --set a.b=c",
        "ds-launch --force_multi --monitor-interval 3 prog", "ds-launch prog --list",
    };
    size_t i;
    (void)state;

    for (i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct result r = parse(lines[i][0]);

        if (options_is_command(r.o.argv[0]))
            assert_int_equal(options_parse_more(&r.o, &r.out, &r.warn, &r.err), 0);
        assert_int_equal(options_check_use(&r.o, &r.err), -1);
        if (!strstr(r.err.text, lines[i][1]))
            fail_msg("%s: %s", lines[i][0], r.err.text);
        done(&r);
    }
    for (i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        struct result r = parse(fine[i]);

        if (options_is_command(r.o.argv[0]))
            assert_int_equal(options_parse_more(&r.o, &r.out, &r.warn, &r.err), 0);
        if (options_check_use(&r.o, &r.err))
            fail_msg("%s: %s", fine[i], r.err.text);
        done(&r);
    }
}

static void bad(void **state)
{
    static const char *const lines[][2] = {
        {"ds-launch --hostfil x p", "did you mean --hostfile"},
        {"ds-launch --num_nodes 0 p", "from 1 to"},
        {"ds-launch --num_nodes 2x p", "from 1 to"},
        {"ds-launch --num_nodes", "needs a value"},
        {"ds-launch --quiet=1 p", "takes no value"},
        {"ds-launch --grace soon p", "such as 30s"},
        {"ds-launch --hosts a --hostfile b p", "exclude each other"},
        {"ds-launch -i a -e b p", "exclude each other"},
        {"ds-launch -i a --num_gpus 2 p", "cannot be given together"},
        {"ds-launch --module --no_python p", "exclude each other"},
        {"ds-launch --launcher OpenMPI p", "use ssh"},
        {"ds-launch --launcher rsh p", "one of local|exec|openssh|ssh"},
        {"ds-launch --node_rank 0 p", "type this once, not per node"},
        {"ds-launch --rdzv-endpoint=a:1 p", "type this once, not per node, and leave it out"},
        {"ds-launch --nnodes 1 --node-rank 1 p", "type this once, not per node"},
        {"ds-launch --nnodes 2 --node-rank 0 p", "type this once, not per node"},
        {"ds-launch --nnodes 1 --rdzv-endpoint=a:1 p", "type this once, not per node"},
        {"ds-launch --nnodes 2 --rdzv-endpoint=localhost:0 p", "type this once, not per node"},
        {"ds-launch -i a --nproc-per-node 2 p", "--nproc-per-node cannot be given together with --include"},
        {"ds-launch -e a --nnodes 2 p", "--nnodes cannot be given together with --exclude"},
        {"ds-launch --nnodes 0 p", "from 1 to"},
        {"ds-launch --nnodes 3:2 p", "above the largest"},
        {"ds-launch --nnodes 2: p", "MIN:MAX"},
        {"ds-launch --nproc-per-node many p", "auto, gpu, cpu"},
        {"ds-launch --max-restarts -1 p", "whole number"},
        {"ds-launch --rdzv-backend etcd-v2 p", "asks no store"},
        {"ds-launch --rdzv-conf keep_alive_interval=3 p", "not supported"},
        {"ds-launch --rdzv-conf join_timeout p", "KEY=VALUE"},
        {"ds-launch --tee 4 p", "1 (stdout)"},
        {"ds-launch -r 0:1, p", "LOCAL_RANK:WHICH"},
        {"ds-launch --redirects 0:4 p", "LOCAL_RANK:WHICH"},
        {"ds-launch --local-ranks-filter 1,x p", "local ranks"},
        {"ds-launch --standalone -H hf p", "excludes --hostfile"},
        {"ds-launch --standalone --nnodes 2 p", "one node"},
        {"ds-launch --run-path p", "not supported"},
        {"ds-launch --launcher exec p", "needs --launcher-args"},
        {"ds-launch --launcher_args x p", "belongs to --launcher exec"},
        {"ds-launch --elastic_training p", "not supported"},
        {"ds-launch --no_ssh p", "not supported"},
        {"ds-launch --set run.steps p", "PATH=VALUE"},
        {"ds-launch --log_level loud p", "debug, info"},
    };
    size_t i;
    (void)state;

    for (i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct result r = parse(lines[i][0]);

        assert_int_equal(r.rc, -1);
        assert_int_equal(err_class(&r.err), ERR_CLASS_INPUT);
        if (!strstr(r.err.text, lines[i][1]))
            fail_msg("%s: %s", lines[i][0], r.err.text);
        done(&r);
    }
}

static void torchrun(void **state)
{
    struct result r = parse("ds-launch --nnodes=1:4 --nproc_per_node 8 --rdzv-id job7 --rdzv_backend c10d "
                            "--rdzv-conf join_timeout=40,read_timeout=60 --max-restarts=3 -t 3 -r 0:1,12:2 --role "
                            "trainer -m pack.train --nnodes 2");
    (void)state;

    assert_int_equal(r.rc, 0);
    assert_int_equal(r.o.torch.nodes_min, 1);
    assert_int_equal(r.o.torch.nodes_max, 4);
    assert_int_equal(r.o.num_nodes, -1);
    assert_int_equal(r.o.torch.nproc, 8);
    assert_int_equal(r.o.ranks_per_node, 8);
    assert_int_equal(r.o.torch.used, 1);
    assert_int_equal(r.o.torch.join_ms, 40000);
    assert_int_equal(r.o.torch.max_restarts, 3);
    assert_string_equal(r.o.torch.run_id, "job7");
    assert_string_equal(r.o.torch.role, "trainer");
    assert_string_equal(r.o.torch.tee, "3");
    assert_string_equal(r.o.torch.redirects, "0:1,12:2");
    assert_int_equal(r.o.module, 1);
    assert_string_equal(r.o.argv[0], "pack.train");
    assert_int_equal(r.o.argc, 3);
    assert_non_null(strstr(buf_str(&r.warn), "read_timeout has no effect"));
    done(&r);
    r = parse("ds-launch --nproc-per-node gpu --nnodes 2 p");
    assert_int_equal(r.rc, 0);
    assert_int_equal(r.o.torch.nproc, NPROC_GPU);
    assert_int_equal(r.o.ranks_per_node, -1);
    assert_int_equal(r.o.num_nodes, 2);
    done(&r);
    r = parse("ds-launch --launcher PDSH p");
    assert_int_equal(r.rc, 0);
    assert_string_equal(r.o.launcher, "ssh");
    done(&r);
}

/* The bits: 1 stdout, 2 stderr. */
static void which(void **state)
{
    (void)state;

    assert_int_equal(torchlog_which("3", 7), 3);
    assert_int_equal(torchlog_which("0", 7), 0);
    assert_int_equal(torchlog_which(NULL, 0), 0);
    assert_int_equal(torchlog_which("0:1,12:2", 0), 1);
    assert_int_equal(torchlog_which("0:1,12:2", 12), 2);
    assert_int_equal(torchlog_which("0:1,12:2", 1), 0);
    assert_int_equal(torchlog_filter("0,2-3", 2), 1);
    assert_int_equal(torchlog_filter("0,2-3", 1), 0);
    assert_int_equal(torchlog_filter(NULL, 1), 1);
}

static void no_effect(void **state)
{
    struct result r = parse("ds-launch --force_multi p");
    (void)state;

    assert_int_equal(r.rc, 0);
    assert_non_null(strstr(buf_str(&r.warn), "--force-multi has no effect"));
    done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good), cmocka_unit_test(plain_words), cmocka_unit_test(job_rows),
        cmocka_unit_test(plan_words), cmocka_unit_test(bad), cmocka_unit_test(no_use), cmocka_unit_test(no_effect),
        cmocka_unit_test(torchrun),   cmocka_unit_test(which),
    };

    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
