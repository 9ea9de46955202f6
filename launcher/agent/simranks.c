/* Ranks that are no processes: see sim.h. Implements agent.h's ranks.c, pump.c and check.c, and reap.h.
 *
 * Invariants: a rank acts from its team's ticker only, never from inside a packet or frame that came for it; what
 * it does is decided by its phase and what it has received; output leaves against the agent's credit. */
#include "engine/base/clock.h"
#include "engine/base/link.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/reap.h"
#include "launcher/agent/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE_BYTES 32768 /* as pump.c */
#define LINE_BYTES 80
#define VALUE_BYTES 64
#define MAX_PEERS 80

enum phase { WAITS, GREETS, PUTS, GETS, LEAVES, DONE }; /* of an exchange; WAITS: of everything else */

struct sim_rank {
    struct sim_team *team;
    enum phase phase;
    int index, number;
    int over;              /* ended */
    int answers, expected; /* packets that came, packets to wait for */
    int left;              /* lines not yet made */
    struct buf out;
    int streams; /* not yet told as ended */
};

struct sim_team {
    struct team team; /* first: the worker has its address */
    struct sim_program program;
    struct sim_rank *rank;
    struct ticker *work;
    int due; /* work is set */
    int begun;
    int64_t until; /* sleep */
};

static int pending_signal; /* from reap_signal, for the reap_children that follows it */

/* ---- the command line */

static int number(const char *text, int max, int *out)
{
    char *end;
    long v = strtol(text, &end, 10);

    if (!*text || *end || v < 0 || v > max)
        return -1;
    *out = (int)v;
    return 0;
}

int sim_program(char **argv, int argc, struct sim_program *p, struct err *err)
{
    static const struct {
        const char *name;
        enum sim_kind kind;
        int min, max; /* arguments */
    } known[] = {{"true", SIM_TRUE, 0, 0},         {"exit", SIM_EXIT, 1, 2},   {"echo", SIM_ECHO, 0, 64},
                 {"lines", SIM_LINES, 1, 1},       {"sleep", SIM_SLEEP, 1, 1}, {"lose", SIM_LOSE, 1, 1},
                 {"exchange", SIM_EXCHANGE, 0, 0}};

    *p = (struct sim_program){.rank = -1};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(argv[0], known[i].name))
            continue;
        p->kind = known[i].kind;
        if (argc - 1 < known[i].min || argc - 1 > known[i].max ||
            (p->kind != SIM_ECHO && argc > 1 && number(argv[1], 1 << 30, &p->n)) ||
            (p->kind == SIM_EXIT && argc > 2 && number(argv[2], 1 << 30, &p->rank)))
            break;
        return 0;
    }
    return err_set(err, ERR_INPUT, "a simulated rank runs no program but true, exit CODE [RANK], echo TEXT, lines N, "
                   "sleep MS, exchange, lose NODE; name real hosts for %s", *argv[0] ? argv[0] : "a job");
}

/* ---- the life of a rank */

static void set_work(struct sim_team *t)
{
    if (!t->due)
        ticker_set(t->work, 0, 0);
    t->due = 1;
}

static void rank_over(struct sim_rank *r, int code, int signo)
{
    struct team *t = &r->team->team;

    if (r->over)
        return;
    r->over = 1;
    r->left = 0;
    t->running--;
    if (t->links)
        links_rank_gone(t->links, r->index, code || signo);
    tell_exit(t, r->number, &(struct rank_end){.code = code, .signal = signo, .wall = clock_wall()});
    set_work(r->team);
}

/* 1 when there may be more to send than credit allows. */
static void rank_output(struct sim_rank *r)
{
    struct team *t = &r->team->team;
    int64_t credit = t->agent->credit;
    size_t n;

    while (r->left && r->out.len < PIECE_BYTES / 2) {
        buf_addf(&r->out, "%-*d\n", LINE_BYTES - 1, r->left--);
    }
    n = r->out.len < PIECE_BYTES ? r->out.len : PIECE_BYTES;
    if (credit < (int64_t)n)
        n = credit > LINE_BYTES ? (size_t)credit : credit > 0 && n > LINE_BYTES ? LINE_BYTES : credit > 0 ? n : 0;
    if (n) {
        const char *nl = memrchr(r->out.data, '\n', n);

        n = nl ? (size_t)(nl + 1 - r->out.data) : n; /* whole lines, as pump.c */
        tell_output(t, r->number, 1, r->out.data, n);
        buf_drop(&r->out, n);
        if (r->out.len || r->left)
            set_work(r->team);
        else
            buf_clear(&r->out);
    }
    if (r->over && !r->out.len)
        for (; r->streams; r->streams--)
            tell_output(t, r->number, 3 - r->streams, NULL, 0);
}

/* ---- the bootstrap exchange: put what the peers need, fence, get it from the peers, fence */

static void say(struct sim_rank *r, enum link_type type, uint32_t id, struct buf *body)
{
    struct buf b = BUF_INIT;

    put_u8(&b, (uint8_t)type);
    put_u32(&b, id);
    buf_add(&b, body->data, body->len);
    buf_clear(body);
    links_packet(r->team->team.links, r->index, (uint8_t *)b.data, b.len);
    buf_clear(&b);
}

static void key_of(int rank, char key[32])
{
    snprintf(key, 32, "address/%d", rank);
}

static void value_of(int rank, uint8_t value[VALUE_BYTES])
{
    for (int i = 0; i < VALUE_BYTES; i++)
        value[i] = (uint8_t)((rank + i) * 7919 >> 4);
}

static void say_name(struct sim_rank *r, enum link_type type, uint32_t id, const char *name)
{
    struct buf b = BUF_INIT;

    put_str(&b, name);
    say(r, type, id, &b);
}

/* Its neighbours in a ring of all ranks, and on its rail (its local rank on every node) those at the distances of a
 * tree: what a ring and a recursive doubling need. */
static int peers_of(const struct sim_rank *r, int peer[MAX_PEERS])
{
    const struct spawn *s = &r->team->team.spawn;
    int n = 0, w = s->world;

    peer[n++] = (r->number + 1) % w;
    peer[n++] = (r->number + w - 1) % w;
    for (int64_t far = s->nranks; far < w && n + 2 <= MAX_PEERS; far *= 2) {
        peer[n++] = (int)((r->number + far) % w);
        peer[n++] = (int)((r->number + w - far) % w);
    }
    return n;
}

static void ask_peers(struct sim_rank *r)
{
    char key[32];
    int peer[MAX_PEERS], n = peers_of(r, peer);

    r->expected = n;
    for (int i = 0; i < n; i++) {
        key_of(peer[i], key);
        say_name(r, LINK_GET, (uint32_t)peer[i] + 1, key);
    }
}

static void put_name(struct sim_rank *r)
{
    char key[32];
    uint8_t value[VALUE_BYTES];
    struct buf b = BUF_INIT;

    key_of(r->number, key);
    value_of(r->number, value);
    put_str(&b, key);
    put_bytes(&b, value, VALUE_BYTES);
    say(r, LINK_PUT, 0, &b);
}

static void exchange(struct sim_rank *r)
{
    struct buf b = BUF_INIT;

    if (r->answers < r->expected)
        return;
    r->answers = 0;
    r->expected = 1;
    switch (r->phase++) {
    case WAITS:
        put_str(&b, build_id());
        put_u32(&b, (uint32_t)r->number + 1);
        say(r, LINK_HELLO, 1, &b);
        break;
    case GREETS:
        put_name(r);
        say_name(r, LINK_FENCE, 1, "put");
        break;
    case PUTS:
        ask_peers(r);
        break;
    case GETS:
        say_name(r, LINK_FENCE, 1, "got");
        break;
    default:
        rank_over(r, 0, 0);
    }
}

static void say_wrong(struct sim_rank *r, const char *what)
{
    struct err err = ERR_INIT;

    err_set(&err, ERR_RANK, "rank %d: %s", r->number, what);
    team_fail(&r->team->team, (uint32_t)r->number, &err);
    r->expected = 1 << 30;
    r->phase = DONE; /* and ends in its turn */
    set_work(r->team);
}

/* An answer of the agent. */
static void take(void *ctx, const uint8_t *packet, size_t n)
{
    static const enum link_type due[] = {LINK_REFUSED, LINK_WELCOME, LINK_FENCED, LINK_VALUE, LINK_FENCED};
    struct sim_rank *r = ctx;
    struct reader rd = reader_of(packet, n);
    enum link_type type = (enum link_type)get_u8(&rd);
    uint32_t id = get_u32(&rd), len = 0;
    uint8_t want[VALUE_BYTES];
    const uint8_t *got = type == LINK_VALUE ? get_bytes(&rd, &len) : NULL;

    if (r->over || r->phase == DONE)
        return;
    value_of((int)id - 1, want);
    if (type != due[r->phase])
        say_wrong(r, "an answer that it did not ask for");
    else if (type == LINK_VALUE && (len != VALUE_BYTES || memcmp(got, want, VALUE_BYTES)))
        say_wrong(r, "a peer's value is not what the peer put");
    else if (++r->answers == r->expected)
        set_work(r->team);
}

/* ---- the team */

static void begin(struct sim_rank *r)
{
    struct sim_team *t = r->team;
    const struct sim_program *p = &t->program;

    tell_started(&t->team, r->number, r->number + 1);
    if (p->kind == SIM_TRUE)
        rank_over(r, 0, 0);
    else if (p->kind == SIM_EXIT && (p->rank < 0 || p->rank == r->number))
        rank_over(r, p->n, 0);
    else if (p->kind == SIM_LINES)
        r->left = p->n;
    for (int i = 1; p->kind == SIM_ECHO && i < t->team.spawn.argc; i++) {
        buf_adds(&r->out, t->team.spawn.argv[i]);
        buf_addc(&r->out, i + 1 < t->team.spawn.argc ? ' ' : '\n');
    }
}

static void step(struct sim_rank *r)
{
    const struct sim_program *p = &r->team->program;

    if (p->kind == SIM_EXCHANGE && !r->over && r->phase == DONE)
        rank_over(r, 1, 0);
    else if (p->kind == SIM_EXCHANGE && !r->over)
        exchange(r);
    else if (p->kind == SIM_SLEEP && clock_ms() >= r->team->until)
        rank_over(r, 0, 0);
    rank_output(r);
    if ((p->kind == SIM_ECHO || p->kind == SIM_LINES) && !r->left && !r->out.len)
        rank_over(r, 0, 0);
}

static void work(void *ctx)
{
    struct sim_team *t = ctx;
    struct agent *a = t->team.agent;

    t->due = 0;
    for (int i = 0; !t->begun && i < t->team.n && !t->team.failed; i++)
        begin(&t->rank[i]);
    for (int i = 0; !t->begun && i < t->team.n; i++) /* killed before they began */
        if (t->team.failed)
            rank_over(&t->rank[i], 127, 0);
    if (!t->begun && t->program.kind == SIM_LOSE && t->program.n == t->team.spawn.node)
        chan_lose(a->chan);
    t->begun = 1;
    t->team.started = t->team.n;
    for (int i = 0; i < t->team.n; i++)
        step(&t->rank[i]);
    if (t->program.kind == SIM_SLEEP && t->team.running)
        ticker_set(t->work, t->until - clock_ms() + 1, 0);
}

struct team *team_start(struct agent *a, uint32_t epoch, struct spawn *spawn)
{
    struct sim_team *t = xcalloc(1, sizeof *t);
    int n = spawn->nranks;

    t->team.agent = a;
    t->team.epoch = epoch;
    t->team.spawn = *spawn;
    memset(spawn, 0, sizeof *spawn);
    t->team.n = t->team.running = n;
    t->team.rank = xcalloc((size_t)n, sizeof *t->team.rank);
    t->rank = xcalloc((size_t)n, sizeof *t->rank);
    sim_program(t->team.spawn.argv, t->team.spawn.argc, &t->program, NULL); /* checked before */
    if (t->program.kind == SIM_EXCHANGE)
        t->team.links = links_create(&t->team);
    for (int i = 0; i < n; i++) {
        t->rank[i] = (struct sim_rank){.team = t, .index = i, .number = t->team.spawn.rank[i].rank, .streams = 2};
        if (t->team.links)
            links_attach(t->team.links, i, take, &t->rank[i]);
    }
    t->until = clock_ms() + t->program.n;
    t->work = ticker_create(a->loop, work, t);
    set_work(t);
    return &t->team;
}

void team_destroy(struct team *team)
{
    struct sim_team *t = (struct sim_team *)team;

    if (!t)
        return;
    ticker_destroy(t->work);
    links_destroy(team->links);
    for (int i = 0; i < team->n; i++)
        buf_clear(&t->rank[i].out);
    spawn_clear(&team->spawn);
    free(team->rank);
    free(t->rank);
    free(t);
}

int team_reaped(struct team *t, pid_t pid, int status)
{
    return 0;
}

void team_signal(struct team *team, int signo)
{
    struct sim_team *t = (struct sim_team *)team;

    for (int i = 0; i < team->n; i++)
        rank_over(&t->rank[i], 0, signo);
}

void team_stdin(struct team *t, int rank, const void *data, size_t n)
{
}

int team_streams(const struct team *team)
{
    const struct sim_team *t = (const struct sim_team *)team;
    int n = 0;

    for (int i = 0; i < team->n; i++)
        n += t->rank[i].streams;
    return n;
}

/* ---- what else ranks.c, pump.c, check.c and reap.c have */

void stream_pump(struct stream *s)
{
}

void pump_credit(struct agent *a)
{
    for (struct team *t = a->team; t; t = t->next)
        set_work((struct sim_team *)t);
}

void pump_tails(void *agent)
{
}

int lift_fd(int fd)
{
    return fd;
}

void check_start(struct agent *a, uint32_t epoch, struct spawn *spawn)
{
    struct sim_program p;
    struct err err = ERR_INIT;

    sim_program(spawn->argv, spawn->argc, &p, &err);
    tell_checked(a, epoch, err.code, err.code ? err.text : "simulated");
    spawn_clear(spawn);
}

int check_reaped(struct agent *a, pid_t pid, int status)
{
    return 0;
}

void check_destroy(struct check *c)
{
}

int reap_signal(int signo, pid_t *sample, int max)
{
    if (signo == SIGTERM || signo == SIGKILL)
        pending_signal = signo;
    return 0;
}

/* Every simulated rank ends by the signal at once; none is ever left. */
int reap_children(void (*dead)(void *ctx, pid_t pid, int status), void *ctx)
{
    struct agent *a = ctx;

    for (struct team *t = a->team; pending_signal && t; t = t->next)
        team_signal(t, pending_signal);
    pending_signal = 0;
    return 1;
}

int reap_all(int limit_ms)
{
    return 0;
}
