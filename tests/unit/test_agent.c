/* ds-agent, started over pipes. Ranks are shell scripts (and tests/unit/agent_rank.c for the link),
 * so what is expected comes from the shell and the kernel. Every process that an agent starts
 * carries a mark in its environment: what is left is counted in /proc. */
#include "tests/unit/agent_driver.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void start_sh(struct driver *d, int n, char *script)
{
    char *argv[] = {"/bin/sh", "-c", script, "sh", NULL};
    struct spawn s = driver_table(d, n, argv);

    driver_spawn(d, &s);
}

static void greeting(void **state)
{
    struct driver d;
    char host[256];
    cpu_set_t mask;
    int loopback = 0;

    driver_begin(&d);
    gethostname(host, sizeof host);
    sched_getaffinity(0, sizeof mask, &mask);
    assert_string_equal(d.hello.hostname, host);
    assert_int_equal(d.hello.cores, CPU_COUNT(&mask));
    assert_in_range(d.hello.port, 1, 65535);
    assert_true(d.hello.mem_bytes ==
                (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
    for (int i = 0; i < d.hello.nifaces; i++)
        loopback += d.hello.iface[i].loopback && !strcmp(d.hello.iface[i].address, "127.0.0.1") &&
                    d.hello.iface[i].prefix == 8;
    assert_int_equal(loopback, 1);
    driver_finish(&d);
}

static void what_a_rank_gets(void **state)
{
    static char script[] =
        "echo \"$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_SIZE <$DS_AGENT_FD> $MASTER_ADDR:$MASTER_PORT "
        "$1 $(pwd) "
        "$(umask) $(ls /proc/self/fd | tr '\\n' ' ')$(readlink /proc/$$/fd/0) "
        "$(cat /proc/$$/oom_score_adj)\"; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status >&2";
    char *argv[] = {"sh", "-c", script, "sh", "a b", NULL};
    struct driver d;
    struct spawn s;
    int score = 0;
    FILE *f = fopen("/proc/self/oom_score_adj", "r");

    if (f && fscanf(f, "%d", &score) == 1)
        fclose(f);
    driver_begin(&d);
    s = driver_table(&d, 2, argv);
    s.cwd = "/usr";
    s.umask = 031;
    driver_spawn(&d, &s);
    assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
    for (int i = 0; i < 2; i++) {
        /* what ls itself holds: descriptor 3 is the folder it reads */
        char *want = xasprintf("%d/2 %d/2 <> 127.0.0.1:1234 a b /usr 0031 0 1 2 3 /dev/null %d\n",
                               i, i, score + 500 > 1000 ? 1000 : score + 500);

        assert_string_equal(buf_str(&d.rank[i].out[1]), want);
        assert_non_null(strstr(buf_str(&d.rank[i].out[2]), "SigBlk:\t0000000000000000"));
        assert_non_null(strstr(buf_str(&d.rank[i].out[2]), "SigIgn:\t0000000000000000"));
        assert_int_equal(d.rank[i].started, 1);
        assert_int_equal(d.rank[i].code, 0);
        free(want);
    }
    driver_finish(&d);
}

static void codes_and_signals(void **state)
{
    struct driver d;

    driver_begin(&d);
    start_sh(&d, 3, "case $RANK in 0) exit 0;; 1) exit 7;; 2) kill -SEGV $$;; esac");
    assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
    assert_int_equal(d.rank[0].code | d.rank[0].signal, 0);
    assert_int_equal(d.rank[1].code, 7);
    assert_int_equal(d.rank[1].signal, 0);
    assert_int_equal(d.rank[2].signal, SIGSEGV);
    for (int i = 0; i < 3; i++)
        assert_int_equal(d.rank[i].exits, 1);
    driver_finish(&d);
}

static void not_started(void **state)
{
    static char *missing[] = {"/no/such/program", NULL}, *folder[] = {"/bin/true", NULL};
    struct driver d;
    struct spawn s;

    driver_begin(&d);
    s = driver_table(&d, 2, missing);
    driver_spawn(&d, &s);
    assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
    assert_int_equal(d.rank[0].code, 127);
    assert_int_equal(d.rank[0].started, 0);
    assert_non_null(
        strstr(buf_str(&d.rank[0].fails), "here: the program /no/such/program is not there"));
    driver_finish(&d);
    driver_begin(&d);
    s = driver_table(&d, 1, folder);
    s.cwd = "/no/such/folder";
    driver_spawn(&d, &s);
    assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
    assert_non_null(strstr(buf_str(&d.rank[0].fails), "/no/such/folder"));
    driver_finish(&d);
}

static void output_is_whole(void **state)
{
    struct driver d;
    struct buf want = BUF_INIT;

    for (int i = 1; i <= 100000; i++)
        buf_addf(&want, "%d\n", i);
    driver_begin(&d);
    start_sh(&d, 3, "seq 100000; seq 100000 >&2; printf 'no newline'");
    assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(d.rank[i].out[2].len, want.len);
        assert_memory_equal(d.rank[i].out[2].data, want.data, want.len);
        assert_int_equal(d.rank[i].out[1].len, want.len + 10);
        assert_memory_equal(d.rank[i].out[1].data, want.data, want.len);
        assert_int_equal(d.rank[i].ended[1], 1);
    }
    buf_clear(&want);
    driver_finish(&d);
}

static long resident_kb(int pid)
{
    char *path = xasprintf("/proc/%d/statm", pid);
    FILE *f = fopen(path, "r");
    long size, pages = 0;

    if (!f || fscanf(f, "%ld %ld", &size, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    free(path);
    return pages * sysconf(_SC_PAGESIZE) / 1024;
}

static void credit_holds_output(void **state)
{
    struct driver d;
    long before;

    signal(SIGPIPE, SIG_IGN);
    driver_start(&d);
    d.echo_credit = 0;
    assert_int_equal(driver_until(&d, driver_greeted, LONG_MS), 1);
    start_sh(&d, 1, "yes");
    driver_until(&d, driver_never, 200);
    assert_int_equal(d.rank[0].out[1].len, 0);
    driver_u32(&d, MSG_CREDIT, 100001);
    driver_until(&d, driver_never, 300);
    assert_int_equal(d.rank[0].out[1].len, 100002); /* to the end of the line */
    before = resident_kb(d.hello.pid);
    driver_until(&d, driver_never, 300);
    assert_int_equal(d.rank[0].out[1].len, 100002);
    assert_in_range(resident_kb(d.hello.pid), 1, (uintmax_t)before + 64);
    for (int i = 0; i < 100; i++) { /* credit that ends within a line, again and again */
        driver_u32(&d, MSG_CREDIT, 37);
        driver_until(&d, driver_never, 2);
    }
    driver_until(&d, driver_never, 300);
    assert_in_range(d.rank[0].out[1].len, 100001 + 3700, 100001 + 3700 + 1);
    for (size_t i = 0; i < d.rank[0].out[1].len; i++)
        assert_int_equal(d.rank[0].out[1].data[i], i % 2 ? '\n' : 'y');
    driver_u64(&d, MSG_PING, 5); /* the channel lives on without credit */
    driver_u64(&d, MSG_KILL, 0);
    assert_int_equal(driver_until(&d, driver_exited, LONG_MS), 1);
    assert_int_equal(d.rank[0].signal, SIGKILL);
    assert_int_equal(d.pongs, 1);
    driver_u32(&d, MSG_CREDIT, 1u << 20); /* what the pipe held */
    assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
    driver_finish(&d);
}

/* A child that shields itself in every way a child can. */
#define STUBBORN                                                                             \
    "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1001 & wait' & " \
    "(setsid sh -c 'sleep 1002 &' &) ; (sleep 1003 &) ; echo up; while :; do sleep 1; done"

/* A line of 62,000 bytes without an end stands in the piece when credit is nearly used up: what is read behind it has
 * the rest of the piece, less than is read otherwise. No frame may hold more than a piece. */
static void long_tail_and_little_credit(void **state)
{
    static char script[] = "z=$(head -c 20000 /dev/zero | tr '\\0' z); echo; head -c 62000 /dev/zero | tr '\\0' y; "
                           "{ head -c 62900 /dev/zero | tr '\\0' e; echo; } >&2; read x; printf %s \"$z\"; read x";
    char *argv[] = {"/bin/sh", "-c", script, NULL};
    struct driver d;
    struct spawn s;

    driver_start(&d);
    assert_int_equal(driver_until(&d, driver_greeted, LONG_MS), 1);
    d.echo_credit = 0;
    s = driver_table(&d, 1, argv);
    s.stdin_rank = 0;
    driver_spawn(&d, &s);
    driver_until(&d, driver_never, 500); /* all of it is in the pipes */
    driver_u32(&d, MSG_CREDIT, 65536);
    driver_stdin(&d, 0, "\n", 1);
    driver_until(&d, driver_never, 500);
    driver_u32(&d, MSG_CREDIT, 1 << 20);
    driver_stdin(&d, 0, NULL, 0);
    assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
    assert_int_equal(d.rank[0].out[1].len, 1 + 62000 + 20000);
    assert_int_equal(d.rank[0].out[2].len, 62900 + 1);
    assert_in_range(d.largest, 1, 65536);
    driver_finish(&d);
}

static void start_stubborn(struct driver *d)
{
    driver_begin(d);
    start_sh(d, 2, STUBBORN);
    assert_int_equal(driver_until(d, driver_spoke, LONG_MS), 1);
    assert_true(driver_left(d) >= 8);
}

static void end_of_channel(void **state)
{
    struct driver d;

    start_stubborn(&d);
    close(d.in);
    d.in = -1;
    assert_int_equal(driver_wait(&d, LONG_MS), 0);
    assert_int_equal(driver_left(&d), 0);
    driver_clear(&d);
}

static void worker_killed(void **state)
{
    struct driver d;

    start_stubborn(&d);
    kill(d.hello.pid, SIGKILL);
    assert_int_equal(driver_wait(&d, LONG_MS), 128 + SIGKILL);
    assert_int_equal(driver_left(&d), 0);
    driver_clear(&d);
}

static int is_closed(const struct driver *d)
{
    return d->closed;
}

static void keeper_killed(void **state)
{
    struct driver d;

    start_stubborn(&d);
    kill(d.pid, SIGKILL);
    assert_int_equal(driver_until(&d, is_closed, LONG_MS), 1); /* the worker has ended */
    assert_int_equal(driver_gone(&d, LONG_MS), 1);
    driver_clear(&d);
}

static void told_by_signal(void **state)
{
    struct driver d;

    start_stubborn(&d);
    kill(d.pid, SIGTERM);
    assert_int_equal(driver_wait(&d, LONG_MS), 0);
    assert_int_equal(d.bye, 1);
    assert_int_equal(driver_left(&d), 0);
    driver_clear(&d);
}

static void missed_pings(void **state)
{
    char *argv[] = {"/bin/sleep", "1000", NULL};
    struct driver d;
    struct spawn s;

    driver_begin(&d);
    s = driver_table(&d, 1, argv);
    s.ping_limit_ms = 500;
    driver_spawn(&d, &s);
    for (int i = 0; i < 15; i++) { /* three limits long, with pings */
        driver_until(&d, driver_never, 100);
        driver_u64(&d, MSG_PING, 1);
    }
    assert_int_equal(d.closed, 0);
    assert_int_equal(d.rank[0].exits, 0);
    assert_int_equal(driver_wait(&d, LONG_MS), 0); /* and without */
    assert_int_equal(driver_left(&d), 0);
    driver_clear(&d);
}

static void term_grace_kill(void **state)
{
    struct driver d;

    driver_begin(&d);
    start_sh(&d, 2,
             "[ $RANK = 0 ] && trap 'exit 5' TERM || trap '' TERM; echo up; while :; do sleep 0.1; "
             "done");
    assert_int_equal(driver_until(&d, driver_spoke, LONG_MS), 1);
    driver_u64(&d, MSG_KILL, 1000);
    assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
    assert_int_equal(d.rank[0].code, 5);
    assert_int_equal(d.rank[1].signal, SIGKILL);
    driver_finish(&d);
}

static void five_hundred_children(void **state)
{
    struct driver d;

    driver_begin(&d);
    start_sh(
        &d, 1,
        "i=0; while [ $i -lt 250 ]; do sleep 1000 & setsid sleep 1000 & i=$((i+1)); done; echo up; "
        "while :; do sleep 1000 & sleep 0.01; done");
    assert_int_equal(driver_until(&d, driver_spoke, LONG_MS), 1);
    driver_u64(&d, MSG_KILL, 0);
    assert_int_equal(driver_until(&d, driver_exited, LONG_MS), 1);
    assert_int_equal(driver_gone(&d, LONG_MS), 1);
    driver_finish(&d);
}

static int one_started(const struct driver *d)
{
    int n = 0;

    for (int i = 0; i < DRIVER_RANKS; i++)
        n += d->rank[i].started;
    return n > 0;
}

static int thousand_exits(const struct driver *d)
{
    int n = 0;

    for (int i = 0; i < DRIVER_RANKS; i++)
        n += d->rank[i].exits;
    return n == 1000;
}

/* The agent hears what is said to it while it starts ranks: told to kill at the first one, it never
 * comes to the last one, and yet accounts for all. */
static void heard_while_starting(void **state)
{
    char *argv[] = {"/bin/sleep", "1000", NULL};
    static struct spawn_rank rank[1000];
    static int node_of[1000];
    struct driver d;
    struct spawn s;
    int started = 0;

    driver_begin(&d);
    s = driver_table(&d, 1, argv);
    for (int i = 0; i < 1000; i++)
        rank[i] = (struct spawn_rank){i, i, 0, ""};
    s.rank = rank;
    s.node_of = node_of;
    s.world = s.nranks = 1000;
    driver_spawn(&d, &s);
    assert_int_equal(driver_until(&d, one_started, LONG_MS), 1);
    driver_u64(&d, MSG_KILL, 0);
    assert_int_equal(driver_until(&d, thousand_exits, LONG_MS), 1);
    for (int i = 0; i < DRIVER_RANKS; i++)
        started += d.rank[i].started;
    assert_in_range(started, 1, 999);
    assert_int_equal(driver_gone(&d, LONG_MS), 1);
    driver_finish(&d);
}

static void standard_input(void **state)
{
    static char block[40000];
    char *argv[] = {"/bin/sh", "-c", "wc -c", NULL};
    struct driver d;
    struct spawn s;

    driver_begin(&d);
    s = driver_table(&d, 2, argv);
    s.stdin_rank = 1;
    driver_spawn(&d, &s);
    for (int i = 0; i < 5; i++) /* against WANT */
        for (int sent = 0; !sent;) {
            driver_until(&d, driver_never, 10);
            if (d.rank[1].wanted >= (int)sizeof block) {
                driver_stdin(&d, 1, block, sizeof block);
                d.rank[1].wanted -= (int)sizeof block;
                sent = 1;
            }
        }
    driver_stdin(&d, 1, NULL, 0);
    assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
    assert_string_equal(d.rank[0].out[1].data, "0\n");
    assert_string_equal(d.rank[1].out[1].data, "200000\n");
    driver_finish(&d);
}

static void signals_and_epochs(void **state)
{
    struct driver d;

    driver_begin(&d);
    start_sh(&d, 1, "trap 'echo usr1; exit 3' USR1; echo up; while :; do sleep 0.05; done");
    assert_int_equal(driver_until(&d, driver_spoke, LONG_MS), 1);
    d.epoch = 7; /* none of ours */
    driver_u32(&d, MSG_SIGNAL, SIGUSR1);
    driver_u64(&d, MSG_KILL, 0);
    driver_until(&d, driver_never, 300);
    assert_int_equal(d.rank[0].exits, 0);
    d.epoch = 1;
    driver_u32(&d, MSG_SIGNAL, SIGUSR1);
    assert_int_equal(driver_until(&d, driver_over, LONG_MS), 1);
    assert_int_equal(d.rank[0].code, 3);
    assert_string_equal(d.rank[0].out[1].data, "up\nusr1\n");
    d.epoch = 2; /* the next one, on the same agent */
    memset(&d.rank[0].exits, 0, sizeof d.rank[0].exits);
    start_sh(&d, 1, "exit $((10 + DS_EPOCH))");
    assert_int_equal(driver_until(&d, driver_exited, LONG_MS), 1);
    assert_int_equal(d.rank[0].code, 12);
    driver_finish(&d);
}

static void foreign_bytes(void **state)
{
    struct driver d;

    start_stubborn(&d);
    assert_int_equal(write(d.in, "bash: oops, this is no frame\n", 29), 29);
    assert_int_equal(driver_wait(&d, LONG_MS), 0);
    assert_int_equal(driver_left(&d), 0);
    driver_clear(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greeting),
        cmocka_unit_test(what_a_rank_gets),
        cmocka_unit_test(codes_and_signals),
        cmocka_unit_test(not_started),
        cmocka_unit_test(output_is_whole),
        cmocka_unit_test(credit_holds_output),
        cmocka_unit_test(long_tail_and_little_credit),
        cmocka_unit_test(end_of_channel),
        cmocka_unit_test(worker_killed),
        cmocka_unit_test(keeper_killed),
        cmocka_unit_test(told_by_signal),
        cmocka_unit_test(missed_pings),
        cmocka_unit_test(term_grace_kill),
        cmocka_unit_test(five_hundred_children),
        cmocka_unit_test(heard_while_starting),
        cmocka_unit_test(standard_input),
        cmocka_unit_test(signals_and_epochs),
        cmocka_unit_test(foreign_bytes),
    };

    /* under nohup, and in some CI, a program starts with signals ignored, and its children inherit that */
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
