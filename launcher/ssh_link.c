/* Links and their pool: see ssh_link.h.
 *
 * A link goes VIA (waits for its bastion) -> QUEUE (waits for a place) -> DIAL -> WIRE -> UP; a failure
 * that may pass leads to PAUSE and back to QUEUE, any other to DOWN. Bastions are links too, made on
 * demand, one per distinct way, shared by every host behind it, and kept to the end of the pool.
 *
 * A host that does not even answer to TCP keeps its place for a moment only, so that many dead hosts don't hold up
 * the others.
 *
 * Invariants: placed == 1 exactly in WIRE, and in DIAL up to SLOW_DIAL_MS; a link's memory goes when its timer is
 * closed. */
#include "launcher/ssh_link.h"

#include "engine/base/clock.h"
#include "launcher/ssh_dial.h"
#include "launcher/ssh_trust.h"
#include "launcher/ssh_tube.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MAX_HOPS 8
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 3000
#define SLOW_DIAL_MS 1000

enum link_state { LINK_VIA, LINK_QUEUE, LINK_DIAL, LINK_WIRE, LINK_PAUSE, LINK_UP, LINK_DOWN };

struct ssh_link {
    struct ssh_pool *pool;
    struct ssh_link *next;    /* in the pool's queue */
    struct ssh_link *next_bastion;
    struct ssh_link *via;     /* the bastion, NULL: direct */
    struct ssh_link *waiting, *next_waiting; /* links that wait for this bastion */
    char *way;                /* of a bastion: its key in the pool */
    int hops;
    struct ssh_target target;
    enum link_state state;
    int placed, tries, closed, noted;
    int reordered;            /* 1: the server's other host key is asked for; 2: it was */
    int64_t deadline_ms;      /* 0: not begun */
    uv_timer_t timer;         /* deadline, or end of the pause */
    struct ssh_dial *dial;
    struct ssh_tube *tube;
    struct ssh_wire *wire;
    struct ssh_login login;
    char *algorithms;
    struct err last;          /* why the last attempt failed */
    struct ssh_link_events ev;
    void *ctx;
};

struct ssh_pool {
    uv_loop_t *loop;
    const struct options *options;
    struct ssh_files *files;
    struct ssh_keyring *ring;
    struct ssh_link *bastions, *queue, **queue_end;
    int placed, serving;
};

int ssh_pool_create(struct ssh_pool **out, uv_loop_t *loop, const struct options *o, struct err *err)
{
    struct ssh_pool *p = xcalloc(1, sizeof *p);

    if (ssh_files_create(&p->files, o, err)) {
        free(p);
        return -1;
    }
    p->loop = loop;
    p->options = o;
    p->ring = ssh_keyring_create();
    p->queue_end = &p->queue;
    *out = p;
    return 0;
}

void ssh_pool_destroy(struct ssh_pool *p)
{
    if (!p)
        return;
    while (p->bastions) {
        struct ssh_link *l = p->bastions;
        p->bastions = l->next_bastion;
        ssh_link_close(l);
    }
    ssh_keyring_destroy(p->ring);
    ssh_files_destroy(p->files);
    free(p);
}

int64_t ssh_pool_timeout_ms(const struct ssh_pool *p)
{
    return p->options->connect_timeout_ms > 0 ? p->options->connect_timeout_ms : SSH_CONNECT_MS;
}

static void link_try(struct ssh_link *l);
static void on_timer(uv_timer_t *t);

static int64_t left_ms(const struct ssh_link *l)
{
    int64_t left = l->deadline_ms - clock_ms();

    return left > 0 ? left : 0;
}

static void take_place(struct ssh_link *l)
{
    l->pool->placed += !l->placed;
    l->placed = 1;
}

static void leave_place(struct ssh_link *l)
{
    l->pool->placed -= l->placed;
    l->placed = 0;
}

/* Gives places to the links that wait longest. One that fails at once leaves its place and comes here again: the
 * outer call goes on, so that the stack does not grow with the queue. */
static void serve_queue(struct ssh_pool *p)
{
    if (p->serving)
        return;
    p->serving = 1;
    while (p->queue && p->placed < SSH_HANDSHAKES) {
        struct ssh_link *l = p->queue;

        p->queue = l->next;
        if (!p->queue)
            p->queue_end = &p->queue;
        l->next = NULL;
        l->state = LINK_DIAL;
        take_place(l);
        link_try(l);
    }
    p->serving = 0;
}

static void enqueue(struct ssh_link *l)
{
    l->state = LINK_QUEUE;
    *l->pool->queue_end = l;
    l->pool->queue_end = &l->next;
    l->next = NULL;
}

static void dequeue(struct ssh_link *l)
{
    struct ssh_link **at = &l->pool->queue;

    while (*at && *at != l)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = l->next;
    if (!*at)
        l->pool->queue_end = at;
}

static void drop_attempt(struct ssh_link *l)
{
    ssh_dial_stop(l->dial);
    ssh_wire_close(l->wire);
    ssh_tube_close(l->tube);
    l->dial = NULL, l->wire = NULL, l->tube = NULL;
    leave_place(l);
}

static void link_down(struct ssh_link *l, const struct err *why)
{
    struct err e = *why;

    uv_timer_stop(&l->timer);
    if (l->state == LINK_QUEUE)
        dequeue(l);
    l->state = LINK_DOWN;
    l->last = e;
    drop_attempt(l);
    serve_queue(l->pool);
    if (!l->closed)
        l->ev.down(l->ctx, &e);
}

/* The bastion is gone, so this link has no way to its host. */
static void link_cut_off(struct ssh_link *l)
{
    struct err e = l->via->last;

    err_prefix(&e, "%s: on the way there", l->target.name);
    link_down(l, &e);
}

static void link_note(struct ssh_link *l, const char *line)
{
    if (l->ev.note && !l->closed)
        l->ev.note(l->ctx, line);
}

static void tell_retry(struct ssh_link *l)
{
    char line[ERR_TEXT_BYTES + 64];

    if (l->noted || l->tries < 3 || left_ms(l) < 2000) /* what is over in a moment is not worth a line */
        return;
    l->noted = 1;
    snprintf(line, sizeof line, "%s; trying on for %d s", l->last.text, (int)(left_ms(l) / 1000));
    link_note(l, line);
}

/* An attempt failed in a way that may pass. */
static void link_again(struct ssh_link *l, const struct err *why)
{
    uint32_t dice = 0;
    int64_t pause = PAUSE_MIN_MS;

    l->last = *why;
    drop_attempt(l);
    if (getrandom(&dice, sizeof dice, GRND_NONBLOCK) != sizeof dice)
        dice = (uint32_t)clock_ns();
    for (int i = 0; i < l->tries && pause < PAUSE_MAX_MS; i++)
        pause *= 2;
    pause = pause > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause;
    pause = pause / 2 + (int64_t)(dice % (uint32_t)pause); /* half to one and a half: no herd comes back */
    l->tries++;
    if (pause >= left_ms(l)) {
        struct err e = *why;
        if (l->tries > 1)
            err_set(&e, why->code, "%s; %d attempts in %d s", why->text, l->tries,
                    (int)(ssh_pool_timeout_ms(l->pool) / 1000));
        link_down(l, &e);
        return;
    }
    tell_retry(l);
    l->state = LINK_PAUSE;
    uv_timer_start(&l->timer, on_timer, (uint64_t)pause, 0);
    serve_queue(l->pool);
}

static void on_timer(uv_timer_t *t)
{
    struct ssh_link *l = t->data;
    struct err e = ERR_INIT;

    if (l->state == LINK_PAUSE) {
        enqueue(l);
        serve_queue(l->pool);
        return;
    }
    if (l->state == LINK_DIAL && l->placed && left_ms(l)) {
        uv_timer_start(&l->timer, on_timer, (uint64_t)left_ms(l), 0);
        leave_place(l);
        serve_queue(l->pool);
        return;
    }
    err_set(&e, ERR_NODE, "%s: %s port %d does not answer%s within %d s%s%s", l->target.name, l->target.host,
            l->target.port, l->state == LINK_WIRE ? " in SSH" : "", (int)(ssh_pool_timeout_ms(l->pool) / 1000),
            l->last.code ? "; before that: " : "", l->last.text);
    link_down(l, &e);
}

static int wire_trust(void *ctx, const char *type, const char *blob, const char *fingerprint,
                      struct err *err)
{
    struct ssh_link *l = ctx;
    struct buf algorithms = BUF_INIT;
    int rc = ssh_target_trust(&l->target, type, blob, fingerprint, err);

    if (rc && !l->reordered && ssh_target_other_types(&l->target, type, &algorithms)) {
        free(l->algorithms);
        l->login.algorithms = l->algorithms = buf_detach(&algorithms);
        l->reordered = 1;
    }
    return rc;
}

/* The same once more at once, in the place it has. */
static void link_reorder(struct ssh_link *l)
{
    l->reordered = 2;
    drop_attempt(l);
    take_place(l);
    link_try(l);
}

static void via_up(struct ssh_link *l);

static void wire_up(void *ctx)
{
    struct ssh_link *l = ctx;

    uv_timer_stop(&l->timer);
    leave_place(l);
    l->state = LINK_UP;
    serve_queue(l->pool);
    l->ev.up(l->ctx);
}

static void wire_down(void *ctx, const struct err *why, int early)
{
    struct ssh_link *l = ctx;

    if (l->reordered == 1)
        link_reorder(l);
    else if (early && l->state == LINK_WIRE)
        link_again(l, why);
    else
        link_down(l, why);
}

static void on_socket(void *ctx, int fd, const struct err *why)
{
    static const struct ssh_wire_events events = {wire_trust, wire_up, wire_down};
    struct ssh_link *l = ctx;
    struct err e = ERR_INIT;

    l->dial = NULL;
    if (fd < 0) {
        e = *why;
        if (l->via)
            err_prefix(&e, "%s: %s port %d cannot be reached through %s", l->target.name, l->target.host,
                       l->target.port, l->via->target.name);
        else
            err_prefix(&e, "%s", l->target.name);
        link_again(l, &e);
        return;
    }
    l->state = LINK_WIRE;
    take_place(l);
    uv_timer_start(&l->timer, on_timer, (uint64_t)left_ms(l), 0);
    if (ssh_wire_open(&l->wire, l->pool->loop, fd, &l->login, &events, l, &e))
        link_down(l, &e);
}

static void link_try(struct ssh_link *l)
{
    int64_t ping = l->pool->options->ping_limit_ms > 0 ? l->pool->options->ping_limit_ms : 10000;
    int64_t limit;

    if (l->via && l->via->state != LINK_UP) {
        link_cut_off(l);
        return;
    }
    if (!l->deadline_ms)
        l->deadline_ms = clock_ms() + ssh_pool_timeout_ms(l->pool);
    limit = left_ms(l);
    uv_timer_start(&l->timer, on_timer, (uint64_t)(limit < SLOW_DIAL_MS ? limit : SLOW_DIAL_MS), 0);
    if (l->target.attempt_ms > 0 && l->target.attempt_ms < limit)
        limit = l->target.attempt_ms;
    l->state = LINK_DIAL;
    if (l->via)
        l->tube = ssh_tube_open(l->pool->loop, l->via->wire, l->target.host, l->target.port, on_socket, l);
    else
        l->dial = ssh_dial_start(l->pool->loop, l->target.host, l->target.port,
                                 (enum ssh_family)l->target.family, limit, 2 * ping, on_socket, l);
    if (l->via && !l->tube) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_NODE, "%s: cannot make a socket pair: %m", l->target.name);
        link_down(l, &e);
    }
}

/* Bastions. */

static void bastion_up(void *ctx)
{
    struct ssh_link *b = ctx, *l;

    while ((l = b->waiting)) {
        b->waiting = l->next_waiting;
        via_up(l);
    }
}

static void via_up(struct ssh_link *l)
{
    enqueue(l);
    serve_queue(l->pool);
}

static void bastion_note(void *ctx, const char *line)
{
    struct ssh_link *b = ctx;

    if (b->waiting)
        link_note(b->waiting, line);
}

/* Who waits for it is told; who runs over it learns it from its own session. */
static void bastion_down(void *ctx, const struct err *why)
{
    struct ssh_link *b = ctx, *l;

    while ((l = b->waiting)) {
        b->waiting = l->next_waiting;
        link_cut_off(l);
    }
}

static int open_at(struct ssh_link **out, struct ssh_pool *p, const char *name, const char *user, int port,
                   const char *jump, int hops, const struct ssh_link_events *ev, void *ctx, struct err *err);

/* The bastion for a ProxyJump value, made when it is not there: the last hop, reached over those before. */
static struct ssh_link *bastion_get(struct ssh_pool *p, const char *jump, int hops, struct err *err)
{
    static const struct ssh_link_events events = {bastion_up, bastion_note, bastion_down};
    const char *comma = strrchr(jump, ','), *last = comma ? comma + 1 : jump;
    char *user, *host, *before = comma ? xstrndup(jump, (size_t)(comma - jump)) : NULL;
    struct ssh_link *b;
    int port;

    for (b = p->bastions; b; b = b->next_bastion)
        if (!strcmp(b->way, jump) && b->state != LINK_DOWN)
            break;
    if (b) {
        free(before);
        return b;
    }
    if (hops >= MAX_HOPS) {
        err_set(err, ERR_INPUT, "ProxyJump %s: more than %d hops, so it goes in a circle", jump, MAX_HOPS);
    } else if (ssh_split_destination(last, strlen(last), &user, &host, &port)) {
        err_set(err, ERR_INPUT, "ProxyJump %s: expected [user@]host[:port], separated by commas", jump);
    } else {
        if (!open_at(&b, p, host, user, port, before, hops + 1, &events, NULL, err)) {
            b->ctx = b;
            b->way = xstrdup(jump);
            b->next_bastion = p->bastions;
            p->bastions = b;
        }
        free(user);
        free(host);
    }
    free(before);
    return b;
}

static void set_login(struct ssh_link *l)
{
    struct buf algorithms = BUF_INIT;

    ssh_target_algorithms(&l->target, &algorithms);
    l->algorithms = buf_detach(&algorithms);
    l->login = (struct ssh_login){
        .name = l->target.name, .host = l->target.host, .user = l->target.user, .port = l->target.port,
        .algorithms = l->algorithms, .agent_socket = l->target.agent_socket,
        .agent_if_locked = l->target.agent_if_locked, .ring = l->pool->ring,
        .keys = &l->target.identity, .nfirst = l->target.nfirst};
}

static void link_free(uv_handle_t *h)
{
    struct ssh_link *l = h->data;

    ssh_target_clear(&l->target);
    free(l->algorithms);
    free(l->way);
    free(l);
}

static void on_begin(uv_timer_t *t)
{
    struct ssh_link *l = t->data;
    const char *line;

    while ((line = ssh_files_note(l->pool->files)))
        link_note(l, line);
    if (l->closed)
        return;
    if (l->via && l->via->state != LINK_UP && l->via->state != LINK_DOWN) {
        l->next_waiting = l->via->waiting;
        l->via->waiting = l;
    } else {
        via_up(l);
    }
}

static int open_at(struct ssh_link **out, struct ssh_pool *p, const char *name, const char *user, int port,
                   const char *jump, int hops, const struct ssh_link_events *ev, void *ctx, struct err *err)
{
    struct ssh_link *l = xcalloc(1, sizeof *l);

    *out = NULL;
    l->pool = p, l->ev = *ev, l->ctx = ctx, l->hops = hops;
    if (ssh_files_target(p->files, name, user, port, &l->target, err)) {
        free(l);
        return -1;
    }
    if (!jump)
        jump = l->target.jump;
    if (jump && !(l->via = bastion_get(p, jump, hops, err))) {
        ssh_target_clear(&l->target);
        free(l);
        return err_prefix(err, "%s", name);
    }
    set_login(l);
    uv_timer_init(p->loop, &l->timer);
    l->timer.data = l;
    l->state = LINK_VIA;
    uv_timer_start(&l->timer, on_begin, 0, 0); /* nothing is told from inside this call */
    *out = l;
    return 0;
}

int ssh_link_open(struct ssh_link **out, struct ssh_pool *p, const char *name, const char *user, int port,
                  const struct ssh_link_events *ev, void *ctx, struct err *err)
{
    return open_at(out, p, name, user, port, NULL, 0, ev, ctx, err);
}

struct ssh_wire *ssh_link_wire(struct ssh_link *l)
{
    return l->wire;
}

void ssh_link_close(struct ssh_link *l)
{
    if (!l || l->closed)
        return;
    l->closed = 1;
    if (l->state == LINK_QUEUE)
        dequeue(l);
    if (l->state == LINK_VIA && l->via)
        for (struct ssh_link **at = &l->via->waiting; *at; at = &(*at)->next_waiting)
            if (*at == l) {
                *at = l->next_waiting;
                break;
            }
    drop_attempt(l);
    uv_close((uv_handle_t *)&l->timer, link_free);
}
