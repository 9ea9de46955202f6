/* A front end in small: see agent_driver.h. */
#include "tests/unit/agent_driver.h"
#include "engine/base/boot.h"
#include "engine/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void pause_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&t, NULL);
}

void driver_start(struct driver *d)
{
    static int serial;
    const char *top = getenv("top_builddir");
    char *path = xasprintf("%s/ds-agent", top ? top : ".");
    int to[2], from[2];

    memset(d, 0, sizeof *d);
    d->epoch = 1;
    d->echo_credit = 1;
    snprintf(d->mark, sizeof d->mark, "DS_TEST_MARK=%d.%d", (int)getpid(), ++serial);
    d->mark_env[0] = d->mark;
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
        abort();
    d->pid = fork();
    if (d->pid == 0) {
        char *argv[] = {path, NULL};

        dup2(to[0], 0);
        dup2(from[1], 1);
        execv(path, argv);
        perror(path);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    free(path);
    d->in = to[1];
    d->out = from[0];
}

void driver_send(struct driver *d, enum msg_type type, const void *data, size_t n)
{
    struct buf b = BUF_INIT;

    msg_put(&b, type, d->epoch, data, n);
    for (size_t at = 0; at < b.len && d->in >= 0;) {
        ssize_t k = write(d->in, b.data + at, b.len - at);

        if (k < 0 && errno != EINTR)
            break;
        at += k > 0 ? (size_t)k : 0;
    }
    buf_clear(&b);
}

static void send_buf(struct driver *d, enum msg_type type, struct buf *b)
{
    driver_send(d, type, b->data, b->len);
    buf_clear(b);
}

void driver_u32(struct driver *d, enum msg_type type, uint32_t v)
{
    struct buf b = BUF_INIT;

    put_u32(&b, v);
    send_buf(d, type, &b);
}

void driver_u64(struct driver *d, enum msg_type type, uint64_t v)
{
    struct buf b = BUF_INIT;

    put_u64(&b, v);
    send_buf(d, type, &b);
}

void driver_stdin(struct driver *d, int rank, const void *data, size_t n)
{
    struct buf b = BUF_INIT;

    put_u32(&b, (uint32_t)rank);
    buf_add(&b, data, n);
    send_buf(d, MSG_STDIN, &b);
}

struct spawn driver_table(struct driver *d, int n, char **argv)
{
    static int node_of[DRIVER_RANKS];
    static struct spawn_rank rank[DRIVER_RANKS];
    struct spawn s = {.job_id = "test",
                      .host = "here",
                      .world = n,
                      .nodes = 1,
                      .node_of = node_of,
                      .address = "127.0.0.2", /* the master is elsewhere: port 1234 is not ours */
                      .interface = "",
                      .master_addr = "127.0.0.1",
                      .master_port = 1234,
                      .grace_ms = 400,
                      .ping_limit_ms = 60000,
                      .stdin_rank = -1,
                      .argv = argv,
                      .cwd = "",
                      .umask = -1,
                      .env = d->mark_env,
                      .nenv = 1,
                      .rank = rank,
                      .nranks = n};

    for (int i = 0; i < n; i++)
        rank[i] = (struct spawn_rank){i, i, 0, ""};
    while (argv[s.argc])
        s.argc++;
    d->n = n;
    return s;
}

void driver_spawn(struct driver *d, const struct spawn *s)
{
    struct buf b = BUF_INIT;

    spawn_put(&b, s);
    send_buf(d, MSG_SPAWN, &b);
}

void driver_check(struct driver *d, const struct spawn *s)
{
    struct buf b = BUF_INIT;

    spawn_put(&b, s);
    send_buf(d, MSG_CHECK, &b);
}

static void answer(struct driver *d, int i)
{
    struct buf b = BUF_INIT;

    put_str(&b, d->kv[i].key);
    put_bytes(&b, d->kv[i].value, d->kv[i].n);
    send_buf(d, MSG_VALUE, &b);
    if (boot_is_once(d->kv[i].key))
        d->kv[i].key[0] = 0; /* as the front end forgets it */
}

static void on_put(struct driver *d, struct reader *r)
{
    char *key = get_str(r);
    uint32_t n;
    const uint8_t *value = get_bytes(r, &n);
    int i = d->nkv++;

    d->kv[i].key = key;
    d->kv[i].n = n;
    d->kv[i].value = xmalloc(n);
    memcpy(d->kv[i].value, value, n);
    for (int k = 0; k < d->nwaiting; k++)
        if (!strcmp(d->waiting[k], key)) {
            if (boot_is_once(key))
                d->waiting[k][0] = 0;
            answer(d, i);
        }
}

static void on_get(struct driver *d, struct reader *r)
{
    char *key = get_str(r);

    for (int i = 0; i < d->nkv; i++)
        if (!strcmp(d->kv[i].key, key)) {
            answer(d, i);
            free(key);
            return;
        }
    d->waiting[d->nwaiting++] = key;
}

/* One node: whoever reports a fence is all there is. */
static void on_fence(struct driver *d, struct reader *r)
{
    struct buf b = BUF_INIT;
    char *name = get_str(r);

    put_str(&b, name);
    send_buf(d, MSG_FENCED, &b);
    free(name);
}

static void on_output(struct driver *d, struct driver_rank *k, struct reader *r)
{
    int which = get_u8(r);
    size_t n = (size_t)(r->end - r->p);

    buf_add(&k->out[which], r->p, n);
    k->ended[which] += n == 0;
    d->largest = n > d->largest ? n : d->largest;
    if (d->echo_credit && n)
        driver_u32(d, MSG_CREDIT, (uint32_t)n);
}

static void on_exit_frame(struct driver_rank *k, struct reader *r)
{
    k->exits++;
    k->code = (int)get_u32(r);
    k->signal = (int)get_u32(r);
}

static void on_fail(struct driver *d, uint32_t rank, struct reader *r)
{
    char *text;

    get_u32(r);
    text = get_str(r);
    buf_addf(rank == MSG_NODE ? &d->node_fails : &d->rank[rank].fails, "%s\n", text);
    free(text);
}

static void on_rank_msg(struct driver *d, const struct msg *m, struct reader *r)
{
    uint32_t rank = get_u32(r);
    struct driver_rank *k = &d->rank[rank % DRIVER_RANKS];

    if (m->type == MSG_FAIL)
        on_fail(d, rank, r);
    else if (m->type == MSG_OUTPUT)
        on_output(d, k, r);
    else if (m->type == MSG_EXIT)
        on_exit_frame(k, r);
    else if (m->type == MSG_WANT)
        k->wanted += (int)get_u32(r);
    else if (m->type == MSG_METRIC)
        buf_addf(&k->metrics, "%.*s\n", (int)(r->end - r->p), (const char *)r->p);
    else if (m->type == MSG_STARTED) {
        k->started++;
        k->pid = (int)get_u32(r);
    }
}

static void on_msg(struct driver *d, const struct msg *m)
{
    struct reader r = reader_of(m->data, m->len);

    switch (m->type) {
    case MSG_HELLO:
        d->greeted = hello_get(&d->hello, m->data, m->len, NULL) == 0;
        break;
    case MSG_PUT:
        on_put(d, &r);
        break;
    case MSG_GET:
        on_get(d, &r);
        break;
    case MSG_FENCE:
        on_fence(d, &r);
        break;
    case MSG_PONG:
        d->pongs++;
        break;
    case MSG_BYE:
        d->bye++;
        break;
    case MSG_CHECKED: {
        char *text;

        d->checks++;
        d->check_code = get_u32(&r);
        text = get_str(&r);
        buf_reset(&d->check_text);
        buf_adds(&d->check_text, text);
        free(text);
        break;
    }
    default:
        on_rank_msg(d, m, &r);
    }
}

/* What is there within ms. */
static void driver_read(struct driver *d, int ms)
{
    static char chunk[65536];
    struct pollfd p = {d->out, POLLIN, 0};
    size_t magic = sizeof MSG_MAGIC - 1;
    struct msg m;
    ssize_t n;

    if (d->closed) {
        pause_ms(ms);
        return;
    }
    if (poll(&p, 1, ms) <= 0)
        return;
    n = read(d->out, chunk, sizeof chunk);
    d->closed = n <= 0;
    if (n <= 0)
        return;
    msg_feed(&d->decoder, chunk, (size_t)n);
    if (!d->greeted && d->decoder.in.len >= magic && !memcmp(d->decoder.in.data, MSG_MAGIC, magic))
        buf_drop(&d->decoder.in, magic);
    while (msg_next(&d->decoder, &m, NULL) == 1)
        on_msg(d, &m);
}

int driver_until(struct driver *d, int (*done)(const struct driver *d), int ms)
{
    int64_t end = clock_ms() + ms;

    while (!done(d) && clock_ms() < end)
        driver_read(d, 20);
    return done(d);
}

int driver_wait(struct driver *d, int ms)
{
    int64_t end = clock_ms() + ms;
    int status;

    while (d->pid && clock_ms() < end) {
        driver_read(d, 5);
        if (waitpid(d->pid, &status, WNOHANG) == d->pid) {
            d->pid = 0;
            d->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
    }
    while (!d->pid && !d->closed && clock_ms() < end)
        driver_read(d, 5);
    return d->pid ? -1 : d->status;
}

static int has_mark(const char *pid, const char *mark)
{
    char *path = xasprintf("/proc/%s/environ", pid);
    static char text[1 << 17];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text);

    if (fd >= 0)
        close(fd);
    free(path);
    return n > 0 && memmem(text, (size_t)n, mark, strlen(mark)) != NULL;
}

int driver_left(const struct driver *d)
{
    DIR *p = opendir("/proc");
    struct dirent *e;
    int n = 0;

    while (p && (e = readdir(p)))
        n += *e->d_name >= '1' && *e->d_name <= '9' && has_mark(e->d_name, d->mark);
    if (p)
        closedir(p);
    return n;
}

int driver_gone(const struct driver *d, int ms)
{
    int64_t end = clock_ms() + ms;

    while (driver_left(d) && clock_ms() < end)
        pause_ms(10);
    return driver_left(d) == 0;
}

void driver_clear(struct driver *d)
{
    if (d->in >= 0)
        close(d->in);
    d->in = -1;
    if (d->pid && driver_wait(d, 20000) < 0) {
        kill(d->pid, SIGKILL);
        waitpid(d->pid, NULL, 0);
    }
    close(d->out);
    msg_decoder_clear(&d->decoder);
    hello_clear(&d->hello);
    buf_clear(&d->check_text);
    buf_clear(&d->node_fails);
    for (int i = 0; i < DRIVER_RANKS; i++) {
        for (int k = 0; k < 3; k++)
            buf_clear(&d->rank[i].out[k]);
        buf_clear(&d->rank[i].metrics);
        buf_clear(&d->rank[i].fails);
    }
    for (int i = 0; i < d->nkv; i++) {
        free(d->kv[i].key);
        free(d->kv[i].value);
    }
    for (int i = 0; i < d->nwaiting; i++)
        free(d->waiting[i]);
}

int driver_greeted(const struct driver *d)
{
    return d->greeted || d->closed;
}

int driver_exited(const struct driver *d)
{
    int n = 0;

    for (int i = 0; i < d->n; i++)
        n += d->rank[i].exits > 0;
    return n == d->n;
}

int driver_over(const struct driver *d)
{
    int n = 0;

    for (int i = 0; i < d->n; i++)
        n += d->rank[i].exits > 0 && d->rank[i].ended[1] && d->rank[i].ended[2];
    return n == d->n;
}

/* Each rank has printed a line. */
int driver_spoke(const struct driver *d)
{
    int n = 0;

    for (int i = 0; i < d->n; i++)
        n += d->rank[i].out[1].len && strchr(d->rank[i].out[1].data, '\n') != NULL;
    return n == d->n;
}

int driver_checked(const struct driver *d)
{
    return d->checks > 0;
}

int driver_never(const struct driver *d)
{
    return 0;
}

void driver_begin(struct driver *d)
{
    signal(SIGPIPE, SIG_IGN);
    driver_start(d);
    assert_int_equal(driver_until(d, driver_greeted, LONG_MS), 1);
    assert_int_equal(d->greeted, 1);
    driver_u32(d, MSG_CREDIT, 1u << 20);
}

/* The usual end: END, BYE, exit 0, nothing left. */
void driver_finish(struct driver *d)
{
    driver_send(d, MSG_END, NULL, 0);
    assert_int_equal(driver_wait(d, LONG_MS), 0);
    assert_int_equal(d->bye, 1);
    assert_int_equal(driver_left(d), 0);
    driver_clear(d);
}
