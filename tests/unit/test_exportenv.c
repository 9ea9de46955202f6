/* What is carried to the ranks, and the env file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/exportenv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *get(const struct envlist *e, const char *name)
{
    size_t n = strlen(name);
    int i;

    for (i = 0; i < e->n; i++)
        if (!strncmp(e->item[i], name, n) && (e->item[i][n] == '=' || !e->item[i][n]))
            return e->item[i] + n;
    return NULL;
}

static char *const shell[] = {"PATH=/bin", "HOME=/root", "NCCL_DEBUG=INFO", "SECRET=x", "RANK=7",
                              "DS_AGENT_FD=3", "DS_FOO=1", "CUDA_VISIBLE_DEVICES=0", "SLURM_X=1",
                              "MY_A=1", "MY_B=2", "PYTHONPATH=/lib", NULL};

static void rules(void **state)
{
    struct envlist e = {0};
    struct err err = ERR_INIT;
    char *const more[] = {"MY_*", "NEW=a=b c", "PATH=/other"};
    (void)state;

    assert_int_equal(envlist_build(&e, shell, NULL, "/nowhere", more, 3, 1, &err), 0);
    assert_string_equal(get(&e, "NCCL_DEBUG"), "=INFO");
    assert_string_equal(get(&e, "DS_FOO"), "=1");
    assert_null(get(&e, "SECRET"));
    assert_null(get(&e, "HOME"));
    assert_null(get(&e, "CUDA_VISIBLE_DEVICES"));
    assert_null(get(&e, "SLURM_X")); /* no allocation */
    assert_string_equal(get(&e, "RANK"), ""); /* removed */
    assert_string_equal(get(&e, "DS_AGENT_FD"), "");
    assert_string_equal(get(&e, "MY_B"), "=2");
    assert_string_equal(get(&e, "NEW"), "=a=b c");
    assert_string_equal(get(&e, "PATH"), "=/other");
    assert_string_equal(get(&e, "PYTHONPATH"), "=/nowhere:/lib");
    /* the user's own words stand last, and only there */
    assert_int_equal(e.late, 4); /* MY_A, MY_B, NEW, PATH */
    assert_string_equal(e.item[e.n - 1], "PATH=/other");
    envlist_clear(&e);
}

/* Nodes of that service have fabric devices of their own. */
static void aisc(void **state)
{
    char *const there[] = {"AISC_JOB_NAME=j", "NCCL_IB_HCA=mlx5_0", "UCX_NET_DEVICES=eth0", "NCCL_DEBUG=INFO", NULL};
    struct envlist e = {0};
    struct err err = ERR_INIT;
    (void)state;

    assert_int_equal(envlist_build(&e, there, NULL, "/nowhere", NULL, 0, 0, &err), 0);
    assert_null(get(&e, "NCCL_IB_HCA"));
    assert_null(get(&e, "UCX_NET_DEVICES"));
    assert_string_equal(get(&e, "NCCL_DEBUG"), "=INFO");
    envlist_clear(&e);
    assert_int_equal(envlist_build(&e, there + 1, NULL, "/nowhere", NULL, 0, 0, &err), 0);
    assert_string_equal(get(&e, "NCCL_IB_HCA"), "=mlx5_0");
    envlist_clear(&e);
}

static void nothing(void **state)
{
    struct envlist e = {0};
    struct err err = ERR_INIT;
    char *const more[] = {"NONE", "MY_A"};
    (void)state;

    assert_int_equal(envlist_build(&e, shell, NULL, "/nowhere", more, 2, 0, &err), 0);
    assert_null(get(&e, "PATH"));
    assert_string_equal(get(&e, "MY_A"), "=1");
    envlist_clear(&e);
}

static void file(void **state)
{
    static const char text[] = "# a comment\n\n  A=1  \nexport B=two words # and a remark\n"
                               "C='it # is'\nD=\"say \\\"x\\\" \"\r\nE=\nF=a=b\nA=last\nG=x#y";
    struct envlist e = {0};
    struct err err = ERR_INIT;
    (void)state;

    assert_int_equal(envlist_parse(&e, "f", text, &err), 0);
    assert_string_equal(get(&e, "A"), "=last");
    assert_string_equal(get(&e, "B"), "=two words");
    assert_string_equal(get(&e, "C"), "=it # is");
    assert_string_equal(get(&e, "D"), "=say \"x\" ");
    assert_string_equal(get(&e, "E"), "=");
    assert_string_equal(get(&e, "F"), "=a=b");
    assert_string_equal(get(&e, "G"), "=x#y");
    assert_int_equal(e.n, 7);
    assert_int_equal(envlist_parse(&e, "f", "A=1\nno equals\n", &err), -1);
    assert_non_null(strstr(err.text, "f:2:"));
    assert_int_equal(envlist_parse(&e, "f", "A='open\n", &err), -1);
    assert_int_equal(envlist_parse(&e, "f", "2A=1\n", &err), -1);
    envlist_clear(&e);
}

/* A file that is named is there, in one of the two places; one that is not named need not be. */
static void named_file(void **state)
{
    char folder[] = "/tmp/ds-env.XXXXXX", path[64], *named[] = {(char[]){"DS_ENV_FILE=my.env"}, NULL};
    char *whole[] = {(char[]){"DS_ENV_FILE=/nowhere/my.env"}, NULL}, *none[] = {NULL};
    struct envlist e = {0};
    struct err err = ERR_INIT;
    FILE *f;
    (void)state;

    assert_non_null(mkdtemp(folder));
    assert_int_equal(envlist_build(&e, named, "/nowhere", folder, NULL, 0, 0, &err), -1);
    assert_non_null(strstr(err.text, "DS_ENV_FILE=my.env: the file is not there"));
    envlist_clear(&e);
    assert_int_equal(envlist_build(&e, whole, "/nowhere", folder, NULL, 0, 0, &err), -1);
    assert_non_null(strstr(err.text, "/nowhere/my.env"));
    envlist_clear(&e);
    assert_int_equal(envlist_build(&e, none, "/nowhere", folder, NULL, 0, 0, &err), 0);
    envlist_clear(&e);
    snprintf(path, sizeof path, "%s/my.env", folder);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("A=1\n", f);
    fclose(f);
    assert_int_equal(envlist_build(&e, named, "/nowhere", folder, NULL, 0, 0, &err), 0);
    assert_string_equal(get(&e, "A"), "=1");
    envlist_clear(&e);
    assert_int_equal(envlist_build(&e, named, folder, "/nowhere", NULL, 0, 0, &err), 0);
    envlist_clear(&e);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rules), cmocka_unit_test(nothing), cmocka_unit_test(aisc),
                                       cmocka_unit_test(file), cmocka_unit_test(named_file)};

    return cmocka_run_group_tests_name("exportenv", tests, NULL, NULL);
}
