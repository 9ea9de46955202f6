/* ds-rank data: what it writes, byte by byte, and that a failure leaves nothing of the final name. Each run
 * is a process of its own, so that a fault countdown starts fresh. */
#include "engine/data/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static int make_dir(void **state)
{
    strcpy(dir, "/tmp/ds-shard-XXXXXX");
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int remove_dir(void **state)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return chdir("/") || system(command);
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(name, "wb");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* Runs data with these words; what it says goes to the file "said". The wait status. */
static int run(const char *fault, const char *const *word)
{
    char *argv[16] = {(char *)"data"};
    int argc = 1, status;
    pid_t pid;

    for (; word[argc - 1]; argc++)
        argv[argc] = (char *)word[argc - 1];
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        int fd = open("said", O_WRONLY | O_CREAT | O_TRUNC, 0600);

        if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
            _exit(99);
        if (fault)
            setenv("DS_FAULT", fault, 1);
        int rc = data_main(argc, argv);

        fflush(NULL);
        _exit(rc);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

#define RUN(...) run(NULL, (const char *const[]){__VA_ARGS__, NULL})
#define RUN_FAULT(fault, ...) run(fault, (const char *const[]){__VA_ARGS__, NULL})

static int said(const char *what)
{
    char text[4096];
    FILE *f = fopen("said", "r");
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    return strstr(text, what) != NULL;
}

static void check_bin(const char *name, const uint16_t *id, int n)
{
    unsigned char b[4096];
    FILE *f = fopen(name, "rb");
    uint32_t head[3];

    assert_non_null(f);
    assert_int_equal(fread(b, 1, sizeof b, f), 1024 + 2 * n);
    fclose(f);
    memcpy(head, b, sizeof head);
    assert_int_equal(head[0], 20240520);
    assert_int_equal(head[1], 1);
    assert_int_equal(head[2], n);
    for (int i = 12; i < 1024; i++)
        assert_int_equal(b[i], 0);
    assert_memory_equal(b + 1024, id, 2 * (size_t)n);
}

static size_t count_files(const char *pattern)
{
    glob_t g;
    size_t n = glob(pattern, 0, NULL, &g) ? 0 : g.gl_pathc;

    if (n)
        globfree(&g);
    return n;
}

static void test_one_file(void **state)
{
    static const uint16_t want[] = {'h', 'i', '\n', 0xc3, 0xa9};

    put("a", "hi\n");
    put("b", "\xc3\xa9");
    assert_int_equal(RUN("one.bin", "a", "b"), 0);
    assert_true(said("one.bin: 5 tokens"));
    assert_true(said("vocabulary 256"));
    check_bin("one.bin", want, 5);
    assert_int_equal(RUN("one.bin", "a"), 2 << 8);
    assert_true(said("one.bin exists") && said("--force"));
    check_bin("one.bin", want, 5);
    assert_int_equal(RUN("--force", "one.bin", "a"), 0);
    check_bin("one.bin", want, 3);
}

static void test_shards(void **state)
{
    static const uint16_t want[] = {300, 'a', 'b', 'c', 300, 'd', 'e'};

    put("abc", "abc");
    put("de", "de");
    assert_int_equal(RUN("--shard-tokens", "3", "--doc-token=300", "s.bin", "abc", "de"), 0);
    assert_true(said("7 tokens in 3 files, vocabulary 301"));
    check_bin("s_000000.bin", want, 3);
    check_bin("s_000001.bin", want + 3, 3);
    check_bin("s_000002.bin", want + 6, 1);
    assert_int_equal(access("s.bin", F_OK), -1);
    /* a shorter second run takes the old tail away */
    assert_int_equal(RUN("--force", "--shard-tokens", "3", "s.bin", "abc"), 0);
    assert_int_equal(count_files("s_*"), 1);
}

/* Only --force replaces a shard, or takes one away, whichever of them is there. */
static void test_shards_are_not_replaced(void **state)
{
    static const char *const there[] = {"p_000000.bin", "p_000001.bin", "p_000002.bin"};

    put("abcd", "abcd"); /* makes two shards; a third would be a tail of an earlier run */
    for (int i = 0; i < 3; i++) {
        put(there[i], "mine");
        assert_int_equal(RUN("--shard-tokens", "3", "p.bin", "abcd"), 2 << 8);
        assert_true(said(there[i]) && said("--force"));
        assert_int_equal(count_files("p_*"), 1);
        assert_int_equal(RUN("--shard-tokens", "9223372036854775807", "q.bin", "abcd"), 0);
        assert_int_equal(unlink("q_000000.bin"), 0);
        assert_int_equal(unlink(there[i]), 0);
    }
}

static void test_read_back(void **state)
{
    struct job job = {.train = (char *)"r_*.bin", .seq_len = 4, .doc_token = 300, .doc_mask = 1};
    int32_t token[4], target[4], pos[4], doc[4];
    struct data *d;
    struct err err = ERR_INIT;

    put("ab", "ab");
    put("cd", "cd");
    assert_int_equal(RUN("--shard-tokens", "2", "--doc-token", "300", "r.bin", "ab", "cd"), 0);
    assert_int_equal(data_open(&d, &job, 301, &err), 0);
    assert_int_equal(data_sample(d, DATA_TRAIN, 0, token, target, pos, doc, &err), 0);
    assert_memory_equal(token, ((int32_t[]){300, 'a', 'b', 300}), 16);
    assert_memory_equal(target, ((int32_t[]){'a', 'b', -1, 'c'}), 16);
    assert_memory_equal(pos, ((int32_t[]){0, 1, 2, 0}), 16);
    assert_memory_equal(doc, ((int32_t[]){0, 0, 0, 3}), 16);
    data_close(d);
}

static void test_bad_use(void **state)
{
    put("t", "text");
    assert_int_equal(RUN("x.bin"), 2 << 8);
    assert_true(said("at least one text"));
    assert_int_equal(RUN("--bogus", "x.bin", "t"), 2 << 8);
    assert_true(said("--bogus is no option"));
    assert_int_equal(RUN("x.bin", "t", "--shard-tokens"), 2 << 8);
    assert_true(said("needs a value"));
    assert_int_equal(RUN("--shard-tokens=0", "x.bin", "t"), 2 << 8);
    assert_int_equal(RUN("--shard-tokens=1Q", "x.bin", "t"), 2 << 8);
    assert_true(said("from 1, such as 100M"));
    assert_int_equal(RUN("--doc-token=65536", "x.bin", "t"), 2 << 8);
    assert_true(said("from 0 to 65535"));
    assert_int_equal(RUN("x.bin", "t", "missing"), 2 << 8);
    assert_true(said("missing"));
    assert_int_equal(RUN("no-such-folder/x.bin", "t"), 1 << 8);
    assert_true(said("cannot create no-such-folder/x.bin"));
    assert_int_equal(RUN("--help"), 0);
    assert_true(said("usage:"));
    assert_int_equal(count_files("x.bin*"), 0);
}

/* A failure at every write, sync and rename: status 1, a sentence, and no file, whole or partial. */
static void test_faults(void **state)
{
    static const char *const fault[] = {"write:1:ENOSPC", "write:2:ENOSPC", "fsync:1", "rename:1"};

    put("t", "text");
    for (size_t i = 0; i < sizeof fault / sizeof *fault; i++) {
        assert_int_equal(RUN_FAULT(fault[i], "f.bin", "t"), 1 << 8);
        assert_true(said("f.bin"));
        assert_int_equal(count_files("f.bin*"), 0);
    }
    assert_true(said("Input/output error"));
}

/* Killed at every write: the older file is whole. */
static void test_killed(void **state)
{
    static const char *const fault[] = {"write:1:KILL", "write:2:KILL", "fsync:1:KILL",
                                        "rename:1:KILL"};
    static const uint16_t want[] = {'o', 'l', 'd'};

    put("old", "old");
    put("t", "text");
    assert_int_equal(RUN("k.bin", "old"), 0);
    for (size_t i = 0; i < sizeof fault / sizeof *fault; i++) {
        int status = RUN_FAULT(fault[i], "--force", "k.bin", "t");

        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        check_bin("k.bin", want, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_file), cmocka_unit_test(test_shards),
        cmocka_unit_test(test_shards_are_not_replaced),
        cmocka_unit_test(test_read_back), cmocka_unit_test(test_bad_use),
        cmocka_unit_test(test_faults),   cmocka_unit_test(test_killed),
    };

    return cmocka_run_group_tests_name("shard", tests, make_dir, remove_dir);
}
