/* The front end's state machine against agents that lie: two hosts of two ranks, whose channels bring whatever the
 * input says. The input is a list of steps: a byte that says what (bits 3 to 5, as below) and of which host (bit 2),
 * a number, and what the number counts. Bit 0 of the first byte: the ranks run already.
 *
 *   0  a frame: the type, and the number's other bytes its payload
 *   1  the same of the epoch before (bit 7: after) the current one
 *   2  so many bytes as the channel brings them
 *   3  the state's deadline is over
 *   4  the channel is down
 *   5  a signal of the user's
 *   6  what an honest agent says: hello, checked, started and so on, by the number
 *
 * Laws: nothing that an agent says is a bug of ours; when nothing
 * more comes, deadlines alone bring the job to its end; a host that is lost has a sentence, and what it made us keep
 * (the key space, output that waits, what is queued for the terminal) is bounded. Nothing waits here: deadlines pass
 * when the input says so. */
#include "tests/fuzz/fuzz.h"

#include "engine/base/build.h"
#include "launcher/front.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define NODES 2

struct channel {
    const struct channel_events *ev;
    void *ctx;
    int shut, told;
};

static struct channel channels[NODES];

static int fake_probe(const struct options *o, char why[256])
{
    *why = 0;
    return 0;
}

static int fake_open(struct channel **ch, void *pool, uv_loop_t *loop, const struct options *o,
                     const struct host *host, int node, const struct channel_events *ev, void *ctx, struct err *err)
{
    channels[node] = (struct channel){.ev = ev, .ctx = ctx};
    *ch = &channels[node];
    return 0;
}

static int fake_send(struct channel *ch, const void *data, size_t n)
{
    return ch->shut ? -1 : 0;
}

static void fake_shut(struct channel *ch)
{
    ch->shut = 1;
}

static void fake_close(struct channel *ch)
{
    ch->shut = ch->told = 1;
}

static const struct spawner_ops fake = {.name = "fake", .probe = fake_probe, .open = fake_open, .send = fake_send,
                                        .shut = fake_shut, .close = fake_close};

static void down(struct channel *ch)
{
    struct err none = ERR_INIT;

    ch->shut = 1;
    if (!ch->told) {
        ch->told = 1;
        ch->ev->down(ch->ctx, &none);
    }
}

/* Output of a node: 1 MiB of credit, and what its streams may overdraw by in each start. */
static void judge_kept(const struct front *f)
{
    const struct backlog_piece *p;
    size_t waits = 0;

    for (p = f->backlog.head; p; p = p->next)
        waits += p->n;
    LAW(waits <= NODES * ((1u << 20) + (4 * (f->o->torch.max_restarts + 1) + 1) * MSG_OVERDRAW_BYTES));
    LAW(writer_pending(f->term) <= 80u << 20);
    LAW(!f->kv || kv_bytes(f->kv) <= KV_TOTAL_BYTES);
}

/* As the loop would: channels that were shut come down, and what the writers are done with gives credit back. */
static void settle(struct front *f)
{
    int m;

    writer_flush(f->term, -1);
    for (m = 0; m < NODES; m++)
        if (channels[m].ev && channels[m].shut)
            down(&channels[m]);
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void deadline(struct front *f)
{
    if (uv_is_active((uv_handle_t *)&f->timer))
        front_deadline(f);
}

static void say(struct channel *ch, enum msg_type type, uint32_t epoch, const void *data, size_t n)
{
    struct buf b = BUF_INIT;

    msg_put(&b, type, epoch, data, n);
    if (!ch->told)
        ch->ev->data(ch->ctx, b.data, b.len);
    buf_clear(&b);
}

static void honest(struct front *f, int node, uint8_t what)
{
    static const enum msg_type types[] = {MSG_HELLO, MSG_CHECKED, MSG_STARTED, MSG_OUTPUT, MSG_EXIT, MSG_FENCE,
                                          MSG_HELD, MSG_PONG, MSG_FAIL};
    enum msg_type type = types[what % 9];
    uint32_t rank = (uint32_t)(2 * node + (what / 9 & 1));
    struct hello hello = {.build_id = (char *)(uintptr_t)build_id(), .machine = "m", .kernel = "k", .hostname = "h",
                          .boot_id = node ? "a" : "b", .cwd = "/", .pid = 7, .cores = 2, .cpus = "0-1", .port = 4000,
                          .device_mask = "", .toward = ""};
    struct hello_iface iface = {"eth0", node ? "10.0.0.2" : "10.0.0.1", 24, 0, ""};
    struct buf b = BUF_INIT;

    hello.iface = &iface;
    hello.nifaces = 1;
    if (type == MSG_HELLO)
        hello_put(&b, &hello);
    else if (type == MSG_CHECKED)
        put_u32(&b, what & 128 ? ERR_NODE : 0), put_str(&b, "no");
    else if (type == MSG_STARTED)
        put_u32(&b, rank), put_u32(&b, 100);
    else if (type == MSG_OUTPUT)
        put_u32(&b, rank), put_u8(&b, 1 + (what / 18 & 1)), buf_add(&b, "line\n", what & 128 ? 5 : 0);
    else if (type == MSG_EXIT)
        put_u32(&b, rank), rank_end_put(&b, &(struct rank_end){.code = what & 128 ? 3 : 0});
    else if (type == MSG_FENCE)
        put_str(&b, "f"), put_u32(&b, 2);
    else if (type == MSG_HELD)
        put_u32(&b, 4001);
    else if (type == MSG_PONG)
        put_u64(&b, 1), put_f64(&b, 1);
    else
        put_u32(&b, rank), put_u32(&b, ERR_RANK), put_str(&b, "it fails");
    say(&channels[node], type, f->epoch, b.data, b.len);
    buf_clear(&b);
}

/* One step of the input; returns the bytes it took. */
static size_t step(struct front *f, const uint8_t *data, size_t n)
{
    int node = data[0] >> 2 & 1;
    size_t count = data[1], have = n - 2 < count ? n - 2 : count, took = 2;
    struct channel *ch = &channels[node];
    uint32_t epoch = f->epoch;

    switch (data[0] >> 3 & 7) {
    case 1:
        epoch += data[0] & 128 ? 1u : UINT32_MAX;
        /* fall through */
    case 0:
        if (have) {
            say(ch, (enum msg_type)data[2], epoch, data + 3, have - 1);
            took += have;
        }
        break;
    case 2:
        if (!ch->told)
            ch->ev->data(ch->ctx, data + 2, have);
        took += have;
        break;
    case 3:
        deadline(f);
        break;
    case 4:
        down(ch);
        break;
    case 5:
        front_signal(f, data[1] % 3 == 0 ? SIGUSR1 : data[1] % 3 == 1 ? SIGINT : SIGKILL);
        break;
    default:
        honest(f, node, data[1]);
    }
    return took;
}

static void judge_end(struct front *f)
{
    int m, turns;

    for (turns = 0; turns < 32 && f->machine.state < JOB_DONE; turns++) {
        if (f->machine.state == JOB_RUNNING)
            front_signal(f, SIGTERM);
        deadline(f);
        settle(f);
    }
    LAW(f->machine.state == JOB_DONE || f->machine.state == JOB_FAILED);
    LAW(!f->bug);
    LAW(f->nfailures <= NODES + f->place.world);
    for (m = 0; m < NODES; m++)
        LAW(f->node[m].down != 2 || f->node[m].why.text[0]);
}

static int task_and_hosts(struct task *t, struct hosts *hosts, struct options *o)
{
    static const char file[] = "a slots=2\nb slots=2\n";
    static char *argv[] = {"true", NULL};
    struct err err = ERR_INIT;

    *o = (struct options){.torch = {.max_restarts = 2, .nodes_min = 0}, .num_nodes = -1, .ranks_per_node = -1,
                          .quiet = 1, .stdin_to = "none"};
    *t = (struct task){.name = "fuzz", .argv = argv, .argc = 1, .cwd = "/", .grace_ms = 1000,
                       .connect_timeout_ms = 1000, .ping_limit_ms = 10000, .job_id = "fuzz"};
    return hostfile_parse(hosts, "F", file, sizeof file - 1, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int null = -1, signals[2];
    struct options o;
    struct task t;
    struct hosts hosts = {0};
    struct err err = ERR_INIT;
    struct buf text = BUF_INIT;
    struct front *f;

    if (null < 0) {
        null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        LAW(pipe(signals) == 0);
    }
    log_level = LOG_ERROR;
    memset(channels, 0, sizeof channels);
    LAW(task_and_hosts(&t, &hosts, &o) == 0);
    f = front_create(&o, &t, &hosts, &fake, signals[0], &err);
    LAW(f != NULL);
    f->out[1] = f->out[2] = writer_fd(f->term, null);
    machine_post(&f->machine, EV_BEGIN);
    if (n && data[0] & 1) /* half of them begin as a launch does, up to ranks that run */
        for (int i = 0; i < 2 * 4; i++)
            honest(f, i % 2, (uint8_t)(i < 4 ? i / 2 : 2 + 9 * (i / 6)));
    while (n >= 2) {
        size_t took = step(f, data, n);

        judge_kept(f);
        settle(f);
        data += took;
        n -= took;
    }
    judge_end(f);
    if (f->nfailures)
        front_blame(f, &text);
    front_destroy(f);
    buf_clear(&text);
    hosts_clear(&hosts);
    return 0;
}
