/* An engine rank for test_agent: speaks the link and exits with what it found. argv[1] says what to
 * do. */
#include "engine/base/clock.h"
#include "engine/base/link.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LONG_MS 60000

static int64_t far(void)
{
    return clock_ms() + LONG_MS;
}

/* Keys, fence, a descriptor and a metric from rank to rank. */
static int talk(struct link *l, struct boot *b, struct err *err)
{
    char key[16], text[32] = "";
    void *value;
    size_t n;
    int fd;

    snprintf(key, sizeof key, "k%d", b->rank);
    if (b->put(b, key, key, strlen(key), err))
        return 1;
    snprintf(key, sizeof key, "k%d", (b->rank + 1) % b->world);
    if (b->get(b, key, &value, &n, far(), err))
        return 2;
    if (n != strlen(key) || memcmp(value, key, n))
        return 3;
    free(value);
    if (b->rank == 0) {
        fd = memfd_create("shared", MFD_CLOEXEC);
        if (write(fd, "through the agent", 17) != 17 || b->putfd(b, "seg", fd, err))
            return 4;
        close(fd);
    } else if (b->getfd(b, "seg", &fd, far(), err) || pread(fd, text, 17, 0) != 17 ||
               strcmp(text, "through the agent")) {
        return 5;
    } else {
        close(fd);
    }
    if (b->fence(b, "all", far(), err) ||
        b->fence(b, "all", far(), err)) /* a name may be used again */
        return 6;
    for (int i = 0; i < 3; i++) { /* a name for one reader begins anew when it was got */
        snprintf(text, sizeof text, "%d", i);
        if (b->rank == 1 && b->put(b, "once/k", text, 1, err))
            return 9;
        if (b->rank == 0) {
            if (b->get(b, "once/k", &value, &n, far(), err) || n != 1 || *(char *)value != *text)
                return 10;
            free(value);
        }
        if (b->fence(b, "all", far(), err))
            return 6;
    }
    if (b->get(b, "job", &value, &n, far(), err))
        return 7;
    printf("rank %d of %d on node %d: %.*s\n", b->rank, b->world, b->node, (int)n, (char *)value);
    free(value);
    return link_metric(l, "{\"step\":1}") ? 8 : 0;
}

/* Rank 1 dies; 0 waits for a key that never comes, 2 on the futex, 3 on the descriptor. */
static int die(struct boot *b, struct err *err)
{
    void *value;
    size_t n;
    uint64_t count;

    if (b->fence(b, "ready", far(), err) && err->code != ERR_RANK_ABORT) /* rank 1 may be quicker */
        return 1;
    if (b->rank == 1)
        raise(SIGKILL);
    if (b->rank == 0)
        return b->get(b, "never", &value, &n, far(), err) && err->code == ERR_RANK_ABORT ? 40 : 2;
    if (b->rank == 2) {
        struct timespec limit = {LONG_MS / 1000, 0};

        while (!__atomic_load_n(&b->page->abort, __ATOMIC_ACQUIRE))
            if (syscall(SYS_futex, &b->page->abort, FUTEX_WAIT, 0, &limit, NULL, 0) &&
                errno == ETIMEDOUT)
                return 3;
        return 42;
    }
    for (int i = 0; i < LONG_MS; i++) {
        if (read(b->abort_fd, &count, sizeof count) == sizeof count)
            return 43;
        usleep(1000);
    }
    return 4;
}

static int stop(struct boot *b)
{
    for (int i = 0; i < LONG_MS; i++) {
        uint32_t why = __atomic_load_n(&b->page->stop, __ATOMIC_ACQUIRE);

        if (why)
            return 50 + (int)why;
        usleep(1000);
    }
    return 1;
}

int main(int argc, char **argv)
{
    struct link *l;
    struct boot *b;
    struct err err = ERR_INIT;
    int rc;

    if (argc == 5 && !strcmp(argv[1], "check")) { /* what an agent asks on CHECK */
        FILE *f = fopen(argv[2], "r");
        char line[64] = "";

        if (!f || !fgets(line, sizeof line, f)) {
            fprintf(stderr, "no job in %s\n", argv[2]);
            return 1;
        }
        fclose(f);
        printf("%s %s %s", argv[3], argv[4], line);
        if (strstr(line, "bad"))
            fprintf(stderr, "job.ini:1: bad is no setting\n");
        return strstr(line, "bad") ? 2 : 0;
    }
    if (link_open(&l, &b, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 99;
    }
    rc = !strcmp(argv[1], "talk")  ? talk(l, b, &err)
         : !strcmp(argv[1], "die") ? die(b, &err)
                                   : stop(b);
    if (rc && err.code)
        fprintf(stderr, "%s\n", err.text);
    fflush(stdout);
    link_close(l);
    return rc;
}
