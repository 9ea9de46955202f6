/* The scripts for the node, run here under every shell there is: what they leave, and their statuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/digest.h"
#include "launcher/ssh_remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

static const char agent[] = "#!/bin/sh\nexit 17\n";
static const char *const shells[] = {"/bin/sh", "/bin/bash", "/bin/tcsh", "/usr/bin/fish", "/bin/zsh",
                                     "/bin/ksh"};
static char folder[] = "/tmp/test_ssh_remote.XXXXXX";

/* Exit status of the command under a login shell, with text on its stdin. */
static int run(const char *shell, const char *command, const char *text, size_t n)
{
    int fd[2], status;
    pid_t pid;

    assert_int_equal(pipe(fd), 0);
    pid = fork();
    if (!pid) {
        setenv("XDG_CACHE_HOME", folder, 1);
        setenv("HOME", folder, 1);
        dup2(fd[0], 0);
        close(fd[0]), close(fd[1]);
        if (!freopen("/dev/null", "w", stderr))
            _exit(99);
        execl(shell, shell, "-c", command, (char *)NULL);
        _exit(99);
    }
    close(fd[0]);
    assert_int_equal(write(fd[1], text, n), (ssize_t)n);
    close(fd[1]);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int leftovers(void)
{
    char command[128];

    snprintf(command, sizeof command, "test $(ls %s/ds-launch 2>/dev/null | grep -c .) -le 1", folder);
    return system(command);
}

static void test_text(void **state)
{
    struct buf b = BUF_INIT;

    remote_run_command("0123", "x86_64", &b);
    buf_addc(&b, '\n');
    remote_copy_command("0123", "t", &b);
    for (const char *p = strchr(b.data, '\'') + 1; *p; p++)
        assert_false(*p == '\\' || *p == '!');
    buf_clear(&b);
}

static void test_life(void **state)
{
    struct buf start = BUF_INIT, copy = BUF_INIT;
    struct utsname u;
    char sha[65], path[256];
    struct stat st;
    int tried = 0;

    uname(&u);
    sha256_hex(agent, sizeof agent - 1, sha);
    remote_run_command(sha, u.machine, &start);
    remote_copy_command(sha, "1.abc", &copy);
    snprintf(path, sizeof path, "%s/ds-launch/agent-%.32s", folder, sha);
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (access(shells[i], X_OK))
            continue;
        tried++;
        unlink(path);
        assert_int_equal(run(shells[i], start.data, "", 0), REMOTE_MISSING);
        assert_int_equal(run(shells[i], copy.data, agent, sizeof agent - 2), REMOTE_COPY); /* cut short */
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(leftovers(), 0);
        assert_int_equal(run(shells[i], copy.data, agent, sizeof agent - 1), 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
        assert_int_equal(leftovers(), 0);
        assert_int_equal(run(shells[i], start.data, "", 0), 17);
    }
    assert_true(tried >= 1);
    buf_clear(&start);
    remote_run_command(sha, "pdp11", &start);
    assert_int_equal(run("/bin/sh", start.data, "", 0), REMOTE_MACHINE);
    buf_clear(&start);
    buf_clear(&copy);
}

static int set_up(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_life)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
