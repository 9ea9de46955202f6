/* What the agents say. Every frame is checked against what this node may say (ranks of its own, numbers in range, an
 * epoch that there was, output within its credit); a frame that breaks the rules loses the node. So an agent that
 * lies costs its host and bounded memory. */
#include "launcher/front.h"

#include "engine/base/clock.h"
#include "launcher/jsonget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int malformed(struct err *err)
{
    return err_set(err, ERR_NODE, "its agent sends a malformed frame: is its memory sound?");
}

static int own_rank(const struct front_node *nd, uint32_t rank)
{
    const struct place *p = &nd->front->place;

    return rank < (uint32_t)p->world && p->rank[rank].node == nd->index;
}

/* ---- coming up ---- */

static void count_up(struct front *f)
{
    if (f->ups == f->place.nodes)
        machine_post(&f->machine, EV_ALL_UP);
}

static int on_hello(struct front_node *nd, const struct msg *m, struct err *err)
{
    struct front *f = nd->front;
    const char *host = f->hosts->host[nd->index].name;

    if (nd->up)
        return err_set(err, ERR_NODE, "its agent greets twice");
    if (hello_get(&nd->hello, m->data, m->len, err))
        return -1;
    nd->up = 1;
    f->ups++;
    front_say(f, LOG_DEBUG, "%s is up: %s, %s, %d cores", host, nd->hello.hostname, nd->hello.kernel,
              nd->hello.cores);
    count_up(f);
    return 0;
}

/* Agents name their host in front; we do so ourselves, for many at once where they say the same. */
static const char *without_host(const struct front_node *nd, const char *text)
{
    return err_unprefix(text, nd->front->hosts->host[nd->index].name);
}

static int on_checked(struct front_node *nd, struct reader *r, struct err *err)
{
    struct front *f = nd->front;
    enum err_code code = (enum err_code)get_u32(r);
    char *text = get_str(r);

    if (nd->checked || !reader_done(r) || f->machine.state < JOB_CHECKING) {
        free(text);
        return err_set(err, ERR_NODE, "its agent answers a check that nobody asked for");
    }
    nd->checked = 1;
    f->checks++;
    if (code) {
        err_set(&nd->why, code, "%s", without_host(nd, text));
        f->check_failures++;
    }
    free(text);
    if (f->checks == f->place.nodes)
        front_checks_done(f);
    return 0;
}

/* ---- ranks ---- */

static int on_started(struct front_node *nd, uint32_t rank, struct reader *r, struct err *err)
{
    struct front *f = nd->front;
    struct front_rank *rk = &f->rank[rank];

    rk->pid = (int)get_u32(r);
    if (!reader_done(r))
        return malformed(err);
    if (rk->started)
        return 0;
    rk->started = 1;
    if (++f->starts == f->place.world)
        machine_post(&f->machine, EV_ALL_STARTED);
    return 0;
}

static void count_exit(struct front *f, int rank)
{
    struct front_rank *rk = &f->rank[rank];

    if (rk->exited)
        return;
    rk->exited = 1;
    f->exits++;
    front_stdin_gone(f, rank);
}

static int is_follower(enum err_code code)
{
    return code == ERR_RANK_PEER || code == ERR_RANK_ABORT;
}

static void says(struct front *f, uint32_t rank, enum err_code code, const char *text)
{
    struct front_rank *rk = &f->rank[rank];

    if (!rk->said)
        rk->said = xmalloc(sizeof *rk->said);
    *rk->said = (struct err)ERR_INIT;
    err_set(rk->said, code, "%s", text);
}

static int on_exit_frame(struct front_node *nd, uint32_t rank, struct reader *r, struct err *err)
{
    struct front *f = nd->front;
    struct front_rank *rk = &f->rank[rank];
    struct rank_end end;
    double wall;

    if (rank_end_get(r, &end))
        return malformed(err);
    if (rk->exited)
        return 0;
    wall = end.wall - nd->offset;
    rk->end = end;
    front_event(f, "rank_exit", ",\"rank\":%u,\"host\":\"%s\",\"code\":%d,\"signal\":%d", rank,
                f->rank_host[rank], end.code, end.signal);
    if (end.signal)
        front_failed(f, FAILED_SIGNAL, (int)rank, nd->index, wall);
    else if (end.code)
        front_failed(f, rk->said && is_follower(rk->said->code) ? FAILED_PEER : FAILED_CODE, (int)rank,
                     nd->index, wall);
    count_exit(f, (int)rank);
    if (f->exits == f->place.world)
        front_all_exited(f);
    return 0;
}

static int on_fail(struct front_node *nd, uint32_t rank, struct reader *r, struct err *err)
{
    struct front *f = nd->front;
    enum err_code code = (enum err_code)get_u32(r);
    char *text = get_str(r);

    if (!reader_done(r)) {
        free(text);
        return malformed(err);
    }
    if (rank != MSG_NODE) {
        says(f, rank, code ? code : ERR_RANK, text);
        front_failed(f, is_follower(code) ? FAILED_PEER : FAILED_CODE, (int)rank, nd->index, clock_wall());
    } else {
        if (!nd->why.code)
            err_set(&nd->why, code ? code : ERR_NODE, "%s", without_host(nd, text));
        front_failed(f, code == ERR_NODE ? FAILED_HOST : FAILED_CODE, -1, nd->index, clock_wall());
    }
    free(text);
    return 0;
}

/* torchrun's error file: {"message": TEXT} or {"message": {"message": TEXT, ...}}. */
static void on_error_file(struct front_rank *rk, const char *json, size_t n)
{
    const char *inner = json;
    struct buf text = BUF_INIT;
    size_t len;
    int rc;

    while (n && (json[n - 1] == '\n' || json[n - 1] == '\r'))
        n--;
    len = n;
    if (jsonget_object(&inner, &len, "message"))
        rc = jsonget_string(json, n, "message", &text);
    else
        rc = jsonget_string(inner, len, "message", &text);
    free(rk->error);
    rk->error = rc || !text.len ? NULL : buf_detach(&text);
    buf_clear(&text);
}

static int on_lost_frame(struct front_node *nd, uint32_t rank, struct reader *r, struct err *err)
{
    struct front *f = nd->front;
    uint32_t peer = get_u32(r);
    char *op = get_str(r);

    get_u64(r);
    if (!reader_done(r)) {
        free(op);
        return malformed(err);
    }
    if (!f->rank[rank].said) {
        char *text = xasprintf("lost rank %u in %s", peer, op);

        says(f, rank, ERR_RANK_PEER, text);
        free(text);
    }
    free(op);
    front_failed(f, FAILED_PEER, (int)rank, nd->index, clock_wall());
    return 0;
}

/* ---- key space ---- */

static int on_kv(struct front_node *nd, const struct msg *m, struct err *err)
{
    struct reader r = reader_of(m->data, m->len);
    struct front *f = nd->front;
    char *key = get_str(&r);
    const uint8_t *value = NULL;
    uint32_t n = 0;
    int rc;

    if (m->type == MSG_PUT)
        value = get_bytes(&r, &n);
    else if (m->type == MSG_FENCE)
        n = get_u32(&r);
    if (!reader_done(&r))
        rc = malformed(err);
    else if (m->type == MSG_PUT)
        rc = kv_put(f->kv, key, value, n, err);
    else if (m->type == MSG_GET)
        rc = kv_get(f->kv, nd->index, key, err);
    else
        rc = kv_fence(f->kv, nd->index, key, (int)n, err);
    free(key);
    return rc;
}

static int on_pong(struct front_node *nd, struct reader *r, struct err *err)
{
    int64_t sent_ns = (int64_t)get_u64(r), now_ns = clock_ns();
    double wall = get_f64(r);

    if (!reader_done(r) || sent_ns < 0 || sent_ns > now_ns || !isfinite(wall))
        return malformed(err);
    nd->offset = wall - (clock_wall() - (double)(now_ns - sent_ns) / 2e9);
    front_count_pong(nd->front, now_ns - sent_ns);
    return 0;
}

/* ---- frames */

static int on_output(struct front_node *nd, const struct msg *m, uint32_t rank, struct reader *r, struct err *err)
{
    struct front *f = nd->front;
    int stream = get_u8(r), now = m->epoch == f->epoch, *ended = &f->rank[rank].ended;
    size_t n = (size_t)(r->end - r->p);

    if (r->failed || (stream != 1 && stream != 2) || (now && *ended & stream))
        return malformed(err);
    if (front_output(f, nd->index, (int)rank, stream, (const char *)r->p, n, err))
        return -1;
    if (n || !now)
        return 0;
    *ended |= stream;
    f->stream_ends++;
    front_try_clear(f);
    return 0;
}

/* What is fenced: a frame of an epoch that is over changes nothing any more. */
static int on_state_frame(struct front_node *nd, const struct msg *m, uint32_t rank, struct reader *r, struct err *err)
{
    switch (m->type) {
    case MSG_STARTED:
        return on_started(nd, rank, r, err);
    case MSG_EXIT:
        return on_exit_frame(nd, rank, r, err);
    case MSG_FAIL:
        return on_fail(nd, rank, r, err);
    case MSG_LOST:
        return on_lost_frame(nd, rank, r, err);
    case MSG_ERROR:
        on_error_file(&nd->front->rank[rank], (const char *)r->p, (size_t)(r->end - r->p));
        return 0;
    default: { /* MSG_WANT */
        uint32_t bytes = get_u32(r);

        return reader_done(r) ? front_stdin_want(nd->front, (int)rank, bytes, err) : malformed(err);
    }
    }
}

/* Frames about one rank: the number comes first. What a rank printed or measured is kept, whatever its epoch. */
static int on_rank_frame(struct front_node *nd, const struct msg *m, struct err *err)
{
    struct reader r = reader_of(m->data, m->len);
    uint32_t rank = get_u32(&r);
    int of_node = m->type == MSG_FAIL && rank == MSG_NODE;

    if (r.failed || !(own_rank(nd, rank) || of_node))
        return err_set(err, ERR_NODE, "its agent speaks of rank %u, which is none of its own", rank);
    if (m->type == MSG_OUTPUT)
        return on_output(nd, m, rank, &r, err);
    if (m->type == MSG_METRIC)
        front_metric(nd->front, (int)rank, (const char *)r.p, (size_t)(r.end - r.p));
    else if (m->type == MSG_EVENT)
        front_rank_event(nd->front, m->epoch, (int)rank, (const char *)r.p, (size_t)(r.end - r.p));
    else if (of_node || m->epoch == nd->front->epoch)
        return on_state_frame(nd, m, rank, &r, err);
    return 0;
}

static int on_rank_or_key(struct front_node *nd, const struct msg *m, struct err *err)
{
    const struct front *f = nd->front;

    if (!f->kv)
        return err_set(err, ERR_NODE, "its agent speaks of ranks before any was to start");
    if (m->epoch > f->epoch)
        return err_set(err, ERR_NODE, "its agent speaks of epoch %u, and this is epoch %u", m->epoch, f->epoch);
    if (m->type == MSG_PUT || m->type == MSG_GET || m->type == MSG_FENCE)
        return m->epoch == f->epoch ? on_kv(nd, m, err) : 0;
    return on_rank_frame(nd, m, err);
}

static int on_frame(struct front_node *nd, const struct msg *m, struct err *err)
{
    struct reader r = reader_of(m->data, m->len);

    if (!nd->up && m->type != MSG_HELLO && m->type != MSG_BYE)
        return err_set(err, ERR_NODE, "its agent does not greet first");
    switch (m->type) {
    case MSG_HELLO:
        return on_hello(nd, m, err);
    case MSG_CHECKED:
        return on_checked(nd, &r, err);
    case MSG_HELD: {
        uint32_t port = get_u32(&r);

        return reader_done(&r) && port <= UINT16_MAX ? front_held(nd->front, nd->index, (int)port, err)
                                                     : malformed(err);
    }
    case MSG_PONG:
        return on_pong(nd, &r, err);
    case MSG_BYE: {
        char *why = get_str(&r);

        front_say(nd->front, LOG_DEBUG, "the agent on %s ends: %s",
                  nd->front->hosts->host[nd->index].name, why);
        if (nd->front->machine.state < JOB_REAPING && !nd->why.code)
            err_set(&nd->why, ERR_NODE, "its agent ended: %s", *why ? why : "it did not say why");
        free(why);
        return 0;
    }
    case MSG_STARTED:
    case MSG_OUTPUT:
    case MSG_EXIT:
    case MSG_METRIC:
    case MSG_EVENT:
    case MSG_FAIL:
    case MSG_LOST:
    case MSG_WANT:
    case MSG_ERROR:
    case MSG_PUT:
    case MSG_GET:
    case MSG_FENCE:
        return on_rank_or_key(nd, m, err);
    default:
        return err_set(err, ERR_NODE, "its agent sends a frame of type %d, which is none of an agent's",
                       (int)m->type);
    }
}

/* ---- the channel ---- */

static void lose_ranks(struct front *f, int node)
{
    int r;

    if (!f->kv)
        return;
    for (r = f->place.first[node]; r < f->place.first[node + 1]; r++)
        count_exit(f, r);
}

/* All or enough hosts have answered or failed: the connecting phase is over. */
static void connect_failed(struct front *f)
{
    if (f->ups + f->losses == f->place.nodes)
        machine_post(&f->machine, EV_NODE_LOST);
    else if (f->losses == 1 &&
             !f->o->torch.nodes_min) /* a moment for the others to fail as well: one message for all */
        front_deadline_in(f, 2000);
}

void front_node_lost(struct front *f, int node, const struct err *why)
{
    struct front_node *nd = &f->node[node];
    const char *host = f->hosts->host[node].name;

    if (nd->down == 2)
        return;
    nd->down = 2;
    if (!nd->why.code)
        nd->why = *why;
    if (!nd->why.code)
        err_set(&nd->why, ERR_NODE, "its agent ended without a word");
    front_event(f, "host_lost", ",\"host\":\"%s\",\"how\":\"channel\"", host);
    f->losses++;
    if (f->machine.state == JOB_CONNECTING) {
        f->ups -= nd->up;
        connect_failed(f);
        return;
    }
    front_failed(f, FAILED_HOST, -1, node, clock_wall());
    lose_ranks(f, node);
    machine_post(&f->machine, EV_NODE_LOST);
    if (f->kv && f->exits == f->place.world)
        machine_post(&f->machine, EV_ALL_EXITED);
}

static void agent_up(void *ctx)
{
    struct front_node *nd = ctx;

    nd->heard_ms = clock_ms();
}

static void agent_data(void *ctx, const void *data, size_t n)
{
    struct front_node *nd = ctx;
    struct err err = ERR_INIT;
    struct msg m;
    int rc;

    if (nd->down)
        return;
    nd->heard_ms = clock_ms();
    nd->front->bytes_from += n;
    msg_feed(&nd->in, data, n);
    while ((rc = msg_next(&nd->in, &m, &err)) > 0) {
        if (on_frame(nd, &m, &err)) {
            rc = -1;
            break;
        }
    }
    if (rc < 0) {
        nd->front->ops->shut(nd->ch);
        front_node_lost(nd->front, nd->index, &err);
    }
}

static void agent_stderr(void *ctx, const char *line)
{
    struct front_node *nd = ctx;

    front_say(nd->front, LOG_INFO, "agent on %s: %s", nd->front->hosts->host[nd->index].name, line);
}

static void agent_down(void *ctx, const struct err *why)
{
    struct front_node *nd = ctx;
    struct front *f = nd->front;

    f->downs++;
    if (f->machine.state >= JOB_REAPING) {
        nd->down = nd->down ? nd->down : 1;
        front_count_down(f);
        return;
    }
    front_node_lost(f, nd->index, why);
}

const struct channel_events agent_events = {agent_up, agent_data, agent_stderr, agent_down};

/* Pings, and nodes that were silent for too long. Each node's turn comes every second or more often, but not all at
 * once: their answers would be a burst. */
void front_tick(struct front *f)
{
    int64_t now = clock_ms();
    struct buf echo = BUF_INIT;
    struct err err = ERR_INIT;
    int m;

    put_u64(&echo, (uint64_t)clock_ns());
    f->tick_part = (f->tick_part + 1) % PING_PARTS;
    for (m = f->tick_part; m < f->place.nodes; m += PING_PARTS) {
        struct front_node *nd = &f->node[m];

        if (!nd->up || nd->down)
            continue;
        front_send(f, m, MSG_PING, echo.data, echo.len);
        if (now - nd->heard_ms > f->task->ping_limit_ms && f->machine.state < JOB_REAPING) {
            err_set(&err, ERR_NODE, "nothing was heard from it for %lld s",
                    (long long)((now - nd->heard_ms) / 1000));
            f->ops->shut(nd->ch);
            front_node_lost(f, m, &err);
        }
    }
    buf_clear(&echo);
}
