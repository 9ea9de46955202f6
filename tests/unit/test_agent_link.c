/* ds-agent and engine ranks: the link (tests/unit/agent_rank.c is the rank) and CHECK. */
#include "tests/unit/agent_driver.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* An engine rank of ours. */
static struct spawn engine_table(struct driver *d, int n, char *what)
{
    static char path[4096];
    static char *argv[] = {path, NULL, NULL};
    const char *top = getenv("top_builddir");
    struct spawn s;

    snprintf(path, sizeof path, "%s/tests/unit/agent_rank", top ? top : ".");
    argv[1] = what;
    s = driver_table(d, n, argv);
    s.engine = 1;
    s.job = (uint8_t *)"[run]";
    s.job_len = 5;
    return s;
}

static void ranks_talk(void **state)
{
    struct driver d;
    struct spawn s;

    driver_begin(&d);
    s = engine_table(&d, 3, "talk");
    driver_spawn(&d, &s);
    assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
    for (int i = 0; i < 3; i++) {
        char *want = xasprintf("rank %d of 3 on node 0: [run]\n", i);

        assert_string_equal(buf_str(&d.rank[i].out[2]), "");
        assert_int_equal(d.rank[i].code, 0);
        assert_string_equal(buf_str(&d.rank[i].out[1]), want);
        assert_string_equal(buf_str(&d.rank[i].metrics), "{\"step\":1}\n");
        free(want);
    }
    driver_finish(&d);
}

static void waits_end_with_a_rank(void **state)
{
    struct driver d;
    struct spawn s;

    driver_begin(&d);
    s = engine_table(&d, 4, "die");
    driver_spawn(&d, &s);
    assert_int_equal(driver_until(&d, driver_over, LONG_MS / 2), 1);
    assert_int_equal(d.rank[1].signal, SIGKILL);
    assert_int_equal(d.rank[0].code, 40);
    assert_int_equal(d.rank[2].code, 42);
    assert_int_equal(d.rank[3].code, 43);
    driver_finish(&d);
}

static void stop_word(void **state)
{
    struct driver d;
    struct spawn s;

    driver_begin(&d);
    s = engine_table(&d, 2, "stop");
    driver_spawn(&d, &s);
    driver_until(&d, driver_never, 200);
    assert_int_equal(d.rank[0].exits, 0);
    driver_u32(&d, MSG_STOP, 2);
    assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
    assert_int_equal(d.rank[0].code, 52);
    assert_int_equal(d.rank[1].code, 52);
    driver_finish(&d);
}

static const char *check(struct driver *d, const struct spawn *s)
{
    d->checks = 0;
    driver_check(d, s);
    assert_int_equal(driver_until(d, driver_checked, LONG_MS), 1);
    return buf_str(&d->check_text);
}

static void checks(void **state)
{
    struct driver d;
    struct spawn s;
    char *none[] = {"/no/ds-rank", NULL}, *late[] = {"/bin/sh", NULL},
         *name[] = {"no-such-name", NULL};
    char *shell[] = {"sh", NULL};

    driver_begin(&d);
    s = engine_table(&d, 3, NULL);
    assert_string_equal(check(&d, &s), "--world 3 [run]");
    assert_int_equal(d.check_code, ERR_OK);
    s.job = (uint8_t *)"bad";
    s.job_len = 3;
    assert_string_equal(check(&d, &s), "here: job.ini:1: bad is no setting");
    assert_int_equal(d.check_code, ERR_INPUT);
    s.argv = none;
    assert_non_null(strstr(check(&d, &s), "here: the program /no/ds-rank is not there"));
    s.argv = late; /* `sh check FILE`: no such script */
    check(&d, &s);
    assert_int_equal(d.check_code, ERR_INPUT);
    s.argv = name;
    s.engine = 0;
    assert_non_null(strstr(check(&d, &s), "no-such-name"));
    s.argv = shell;
    assert_string_equal(check(&d, &s), "");
    assert_int_equal(d.check_code, ERR_OK);
    s.cwd = "/no/folder";
    assert_non_null(strstr(check(&d, &s), "/no/folder"));
    driver_finish(&d);
}

/* A program that can't be loaded, and one that hangs. */
static void checks_of_broken_programs(void **state)
{
    char folder[] = "/tmp/ds-agent-test.XXXXXX", *path, *argv[] = {NULL, NULL};
    struct driver d;
    struct spawn s;
    FILE *f;

    assert_non_null(mkdtemp(folder));
    path = xasprintf("%s/rank", folder);
    f = fopen(path, "w");
    fprintf(
        f,
        "#!/bin/sh\n[ -e %s/hang ] && exec sleep 1000\n"
        "echo \"$0: error while loading shared libraries: libx.so.1: cannot open\" >&2; exit 127\n",
        folder);
    fclose(f);
    chmod(path, 0755);
    argv[0] = path;
    driver_begin(&d);
    s = engine_table(&d, 1, NULL);
    s.argv = argv;
    assert_non_null(strstr(check(&d, &s), "libx.so.1: cannot open"));
    assert_non_null(strstr(buf_str(&d.check_text), "here: "));
    assert_int_equal(d.check_code, ERR_NODE);
    argv[0] = xasprintf("%s/hang", folder);
    fclose(fopen(argv[0], "w"));
    unlink(argv[0]);
    mkdir(argv[0], 0755);
    s.check_ms = 300;
    {
        char *hang = argv[0];

        argv[0] = path;
        assert_non_null(strstr(check(&d, &s), "no answer in time"));
        rmdir(hang);
        free(hang);
    }
    driver_finish(&d);
    unlink(path);
    rmdir(folder);
    free(path);
}

/* A check that KILL does not make go away in time (here a tracer keeps it, as the kernel may with a file system that
 * hangs): the answer comes all the same, and the agent ends well. */
static void check_that_stays(void **state)
{
    char folder[] = "/tmp/ds-agent-test.XXXXXX", *path, *note, *argv[] = {NULL, NULL};
    struct driver d;
    struct spawn s;
    FILE *f;
    int pid = 0;

    assert_non_null(mkdtemp(folder));
    path = xasprintf("%s/rank", folder);
    note = xasprintf("%s/pid", folder);
    f = fopen(path, "w");
    fprintf(f, "#!/bin/sh\necho $$ >%s.new; mv %s.new %s; exec sleep 1000\n", note, note, note);
    fclose(f);
    chmod(path, 0755);
    argv[0] = path;
    driver_begin(&d);
    s = engine_table(&d, 1, NULL);
    s.argv = argv;
    s.check_ms = 1000;
    d.checks = 0;
    driver_check(&d, &s);
    for (int i = 0; i < 900 && !pid; i++) {
        if ((f = fopen(note, "r"))) {
            assert_int_equal(fscanf(f, "%d", &pid), 1);
            fclose(f);
        }
        usleep(1000);
    }
    if (pid && ptrace(PTRACE_SEIZE, pid, NULL, NULL))
        pid = 0; /* slower than the limit, or not allowed here: the plain case */
    assert_int_equal(driver_until(&d, driver_checked, LONG_MS), 1);
    assert_non_null(strstr(buf_str(&d.check_text), "no answer in time"));
    if (pid) {
        assert_non_null(strstr(check(&d, &s), "is running already"));
        while (waitpid(pid, NULL, __WALL) == pid) /* the tracer has seen it: now its parent may */
            ;
    }
    driver_finish(&d);
    unlink(note);
    unlink(path);
    rmdir(folder);
    free(note);
    free(path);
}

/* With fewer and fewer descriptors something fails, here or there; it is told each time and nothing falls. */
static void few_descriptors(void **state)
{
    char *argv[] = {"/bin/true", NULL};
    struct rlimit usual, few;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    few = usual;
    for (few.rlim_cur = 60; few.rlim_cur > 12; few.rlim_cur--) {
        struct driver d;
        struct spawn s;

        signal(SIGPIPE, SIG_IGN);
        setrlimit(RLIMIT_NOFILE, &few);
        driver_start(&d);
        setrlimit(RLIMIT_NOFILE, &usual);
        driver_until(&d, driver_greeted, LONG_MS);
        if (d.greeted) {
            driver_u32(&d, MSG_CREDIT, 1u << 20);
            s = driver_table(&d, 2, argv);
            check(&d, &s);
            driver_spawn(&d, &s);
            assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
            driver_finish(&d);
        } else {
            assert_true(driver_wait(&d, LONG_MS) > 0);
            driver_clear(&d);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_talk),
        cmocka_unit_test(waits_end_with_a_rank),
        cmocka_unit_test(stop_word),
        cmocka_unit_test(checks),
        cmocka_unit_test(checks_of_broken_programs),
        cmocka_unit_test(check_that_stays),
        cmocka_unit_test(few_descriptors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
