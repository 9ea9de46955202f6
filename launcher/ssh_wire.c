/* libssh sessions in a libuv loop: see ssh_wire.h.
 *
 * libssh keeps its own poll set per session; here a session is asked to go on whenever its socket is
 * ready (uv_poll) or somebody queued work (uv_idle, armed for one round). pump() is the only place that
 * calls the library after set-up. One libssh call may read packets of every stream, so a pump goes
 * round all streams until none moves.
 *
 * Invariants: streams and the wire are freed only outside pump() (busy == 0); a stream that was closed
 * by its owner gets no callback; the uv handles are closed before libssh closes the socket. */
#include "launcher/ssh_login.h"
#include "launcher/ssh_stream.h"

#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <libssh/server.h> /* ssh_execute_message_callbacks: reads packets when no stream is there */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES 65536
#define ROUNDS 64            /* of one pump; then the loop gets its turn */
#define DRAIN_MS 500         /* from exit status to end, when a left-behind process holds the pipes */

struct key {
    char *path;
    ssh_key key; /* NULL: not usable */
    enum { KEY_OK, KEY_MISSING, KEY_LOCKED, KEY_BAD } state;
};

struct ssh_keyring {
    struct key *key;
    int n, cap;
    char scratch[READ_BYTES]; /* what was read is told at once, so one place serves all sessions */
};

enum wire_state { WIRE_CONNECT, WIRE_AUTH, WIRE_UP, WIRE_DEAD };

struct ssh_wire {
    uv_loop_t *loop;
    uv_poll_t poll;
    uv_idle_t idle;
    uv_timer_t timer; /* ends the drain after an exit status */
    int handles, busy, closing;
    ssh_session s;
    int fd;
    enum wire_state state;
    const struct ssh_login *login;
    int attempt;      /* 0..nkeys: keys, with the agent in between; then "none", if nothing was asked yet */
    int asked, partial, unblocked;
    struct buf tried;
    struct ssh_wire_events ev;
    void *ctx;
    struct ssh_stream *streams;
    int watched;      /* events of the poll handle; 0: stopped */
};

const char *ssh_wire_version(void)
{
    return ssh_version(0);
}

struct ssh_keyring *ssh_keyring_create(void)
{
    ssh_set_log_level(SSH_LOG_NOLOG);
    return xcalloc(1, sizeof(struct ssh_keyring));
}

void ssh_keyring_destroy(struct ssh_keyring *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->n; i++) {
        free(r->key[i].path);
        ssh_key_free(r->key[i].key);
    }
    free(r->key);
    free(r);
}

/* Stands where OpenSSL would ask on the terminal. */
static int no_passphrase(const char *prompt, char *out, size_t len, int echo, int verify, void *locked)
{
    *(int *)locked = 1;
    return -1;
}

static struct key *ring_get(struct ssh_keyring *r, const char *path)
{
    int locked = 0;

    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->key[i].path, path))
            return &r->key[i];
    ARRAY_GROW(r->key, r->n, r->cap);
    struct key *k = &r->key[r->n++];
    *k = (struct key){.path = xstrdup(path)};
    if (access(path, F_OK)) {
        k->state = KEY_MISSING;
    } else if (ssh_pki_import_privkey_file(path, NULL, no_passphrase, &locked, &k->key) != SSH_OK) {
        k->key = NULL;
        k->state = locked || ssh_key_is_locked(path) ? KEY_LOCKED : KEY_BAD;
    }
    return k;
}

static void on_timer(uv_timer_t *t)
{
    ssh_wire_kick(t->data);
}

static void on_exit_status(ssh_session session, ssh_channel ch, int status, void *arg)
{
    struct ssh_stream *s = arg;

    s->exited = 1;
    s->end.status = status;
}

static void on_exit_signal(ssh_session session, ssh_channel ch, const char *name, int core,
                           const char *message, const char *lang, void *arg)
{
    struct ssh_stream *s = arg;

    s->exited = 1;
    snprintf(s->end.signal, sizeof s->end.signal, "%s", name);
}

static struct ssh_stream *stream_create(struct ssh_wire *w, const struct ssh_stream_events *ev, void *ctx)
{
    struct ssh_stream *s = xcalloc(1, sizeof *s);

    s->wire = w;
    s->ev = *ev;
    s->ctx = ctx;
    s->end.status = -1;
    s->ch = ssh_channel_new(w->s);
    s->cb = xcalloc(1, sizeof *s->cb);
    ssh_callbacks_init(s->cb);
    s->cb->userdata = s;
    s->cb->channel_exit_status_function = on_exit_status;
    s->cb->channel_exit_signal_function = on_exit_signal;
    if (s->ch)
        ssh_set_channel_callbacks(s->ch, s->cb);
    s->next = w->streams;
    w->streams = s;
    ssh_wire_kick(w);
    return s;
}

struct ssh_stream *ssh_wire_exec(struct ssh_wire *w, const char *command,
                                 const struct ssh_stream_events *ev, void *ctx)
{
    struct ssh_stream *s = stream_create(w, ev, ctx);

    s->command = xstrdup(command);
    return s;
}

struct ssh_stream *ssh_wire_forward(struct ssh_wire *w, const char *host, int port,
                                    const struct ssh_stream_events *ev, void *ctx)
{
    struct ssh_stream *s = stream_create(w, ev, ctx);

    s->host = xstrdup(host);
    s->port = port;
    return s;
}

static void stream_free(struct ssh_stream *s)
{
    if (s->ch) {
        ssh_remove_channel_callbacks(s->ch, s->cb);
        ssh_channel_free(s->ch); /* says close, does not wait */
    }
    free(s->cb);
    free(s->command), free(s->host);
    buf_clear(&s->out);
    free(s);
}

/* The way from nothing to running. */
static int stream_start(struct ssh_stream *s)
{
    int rc;

    if (!s->ch) {
        ssh_stream_finish(s, "out of memory");
        return 1;
    }
    if (s->state == STREAM_EXEC)
        rc = ssh_channel_request_exec(s->ch, s->command);
    else if (s->host)
        rc = ssh_channel_open_forward(s->ch, s->host, s->port, "127.0.0.1", 0);
    else
        rc = ssh_channel_open_session(s->ch);
    if (rc == SSH_AGAIN)
        return 0;
    if (rc != SSH_OK) {
        ssh_stream_finish(s, ssh_get_error(s->wire->s));
        return 1;
    }
    s->state = s->state == STREAM_OPENING && s->command ? STREAM_EXEC : STREAM_RUN;
    if (s->state == STREAM_RUN && s->ev.open)
        s->ev.open(s->ctx);
    return 1;
}

static int stream_write(struct ssh_stream *s)
{
    const char *data;
    size_t left = ssh_stream_next(s, READ_BYTES, &data);
    int n = 0;

    if (left && ssh_channel_window_size(s->ch)) {
        n = ssh_channel_write(s->ch, data, (uint32_t)left);
        if (n < 0)
            return 0; /* the session or channel is gone: told where that is looked at */
        ssh_stream_taken(s, (size_t)n);
    }
    if (ssh_stream_next(s, 1, &data))
        return n > 0;
    if (s->want_eof && !s->sent_eof) {
        s->sent_eof = 1;
        ssh_channel_send_eof(s->ch);
    }
    ssh_stream_drained(s);
    return n > 0;
}

static int stream_read(struct ssh_stream *s, int is_stderr)
{
    char *scratch = s->wire->login->ring->scratch;
    int n = ssh_channel_read_nonblocking(s->ch, scratch, READ_BYTES, is_stderr);

    if (n > 0) {
        s->ev.data(s->ctx, is_stderr, scratch, (size_t)n);
        return 1;
    }
    if (n == SSH_EOF || (n <= 0 && ssh_channel_is_eof(s->ch)))
        s->eof[is_stderr] = 1;
    return 0;
}

static int stream_pump(struct ssh_stream *s)
{
    int moved = 0;

    if (ssh_stream_gone(s) || s->state == STREAM_ENDED)
        return 0;
    if (s->state != STREAM_RUN)
        return stream_start(s);
    moved |= stream_write(s);
    for (int i = 1; i >= 0 && !s->paused && !ssh_stream_gone(s); i--)
        moved |= stream_read(s, i);
    if (ssh_stream_gone(s) || s->paused || moved)
        return moved;
    if (s->exited && !s->exit_time) {
        s->exit_time = uv_now(s->wire->loop) + DRAIN_MS;
        uv_timer_start(&s->wire->timer, on_timer, DRAIN_MS + 1, 0);
    }
    if (!s->exited && !ssh_is_connected(s->wire->s))
        return 0; /* not the command's end but the session's */
    if (ssh_channel_is_closed(s->ch) || (s->eof[0] && s->eof[1] && (s->exited || s->host)) ||
        (s->exit_time && uv_now(s->wire->loop) >= s->exit_time))
        ssh_stream_finish(s, "");
    return moved;
}

static void wire_down(struct ssh_wire *w, const struct err *why, int early)
{
    w->state = WIRE_DEAD;
    for (struct ssh_stream *s = w->streams; s; s = s->next)
        ssh_stream_finish(s, why->text);
    if (!w->closing)
        w->ev.down(w->ctx, why, early);
}

/* "NAME: while ...: what libssh says" */
static void wire_broken(struct ssh_wire *w, const char *doing)
{
    struct err e = ERR_INIT;
    int early = !ssh_get_serverbanner(w->s);
    const char *said = ssh_get_error_code(w->s) ? ssh_get_error(w->s) : "";

    if (early) /* what sshd does beyond MaxStartups */
        said = "the server hung up before it answered, as sshd does when too many log in at once";
    else if (!*said && (ssh_get_status(w->s) & SSH_CLOSED)) /* (the getter spoils the error's text) */
        said = ssh_get_disconnect_message(w->s);
    err_set(&e, ERR_NODE, "%s: %s: %s%s", w->login->name, doing, said && *said ? said : "the connection ended",
            w->state == WIRE_CONNECT && !early ? "; if ssh does get in, --launcher openssh uses it" : "");
    wire_down(w, &e, early);
}

static int check_host_key(struct ssh_wire *w, struct err *err)
{
    ssh_key key = NULL;
    char *blob = NULL, *print = NULL;
    unsigned char *hash = NULL;
    size_t n = 0;
    int rc = -1;

    if (ssh_get_server_publickey(w->s, &key) == SSH_OK &&
        ssh_pki_export_pubkey_base64(key, &blob) == SSH_OK &&
        ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &n) == SSH_OK &&
        (print = ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, n)))
        rc = w->ev.trust(w->ctx, ssh_key_type_to_char(ssh_key_type(key)), blob, print, err);
    else
        err_set(err, ERR_NODE_AUTH, "%s: the server's host key cannot be read", w->login->name);
    ssh_string_free_char(blob);
    ssh_string_free_char(print);
    ssh_clean_pubkey_hash(&hash);
    ssh_key_free(key);
    return rc;
}

/* What the server would take besides keys, and we can't do. */
static const char *other_methods(struct ssh_wire *w, struct buf *out)
{
    int list = ssh_userauth_list(w->s, NULL);

    buf_addf(out, "%s%s%s%s", list & SSH_AUTH_METHOD_HOSTBASED ? ", hostbased" : "",
             list & SSH_AUTH_METHOD_GSSAPI_MIC ? ", gssapi-with-mic" : "",
             list & SSH_AUTH_METHOD_INTERACTIVE ? ", keyboard-interactive" : "",
             list & SSH_AUTH_METHOD_PASSWORD ? ", password" : "");
    return out->len ? out->data + 2 : "";
}

static void auth_failed(struct ssh_wire *w)
{
    struct err e = ERR_INIT;
    struct buf others = BUF_INIT;

    ssh_login_refused(w->login, buf_str(&w->tried), other_methods(w, &others), w->partial, &e);
    buf_clear(&others);
    wire_down(w, &e, 0);
}

static void tried(struct ssh_wire *w, const char *what, const char *path)
{
    buf_addf(&w->tried, "%s%s%s", w->tried.len ? "; " : "", what, path);
}

/* Where the agent stands among the attempts. */
static int attempt_key(const struct ssh_login *l, int attempt)
{
    return attempt < l->nfirst ? attempt : attempt - 1;
}

/* libssh can only offer all keys of an agent. With IdentitiesOnly that is done when it is the only way to
 * use a key that was named. */
static int asks_agent(struct ssh_wire *w)
{
    const struct ssh_login *l = w->login;
    int locked = 0;

    for (int i = 0; i < l->nfirst; i++)
        locked |= ring_get(l->ring, l->keys->word[i])->state == KEY_LOCKED;
    return l->agent_socket && (!l->agent_if_locked || locked);
}

/* Whatever is asked first brings the list of what the server takes: no need to ask for "none" before. */
static int auth_attempt(struct ssh_wire *w)
{
    const struct ssh_login *l = w->login;
    struct key *k;

    if (w->attempt > l->keys->n) {
        w->asked = 1;
        return ssh_userauth_none(w->s, NULL);
    }
    if (w->attempt == l->nfirst) {
        w->asked |= asks_agent(w);
        return asks_agent(w) ? ssh_userauth_agent(w->s, NULL) : SSH_AUTH_DENIED;
    }
    k = ring_get(l->ring, l->keys->word[attempt_key(l, w->attempt)]);
    w->asked |= k->key != NULL;
    return k->key ? ssh_userauth_publickey(w->s, NULL, k->key) : SSH_AUTH_DENIED;
}

static void auth_note(struct ssh_wire *w)
{
    const struct ssh_login *l = w->login;
    struct key *k;

    if (w->attempt == l->nfirst) {
        tried(w, asks_agent(w)      ? "tried ssh-agent"
                 : l->agent_socket ? "ssh-agent left out (IdentitiesOnly)"
                                   : "no ssh-agent", "");
        return;
    }
    k = ring_get(l->ring, l->keys->word[attempt_key(l, w->attempt)]);
    if (k->state == KEY_OK)
        tried(w, "tried ", k->path);
    else if (k->state == KEY_LOCKED)
        tried(w, "needs its passphrase, so ssh-add it: ", k->path);
    else if (k->state == KEY_BAD || w->attempt < l->nfirst)
        tried(w, k->state == KEY_BAD ? "unreadable " : "missing ", k->path);
}

/* One step of the login; 1 when something moved. */
static int step_auth(struct ssh_wire *w)
{
    int rc = auth_attempt(w);

    if (rc == SSH_AUTH_AGAIN)
        return 0;
    if (rc == SSH_AUTH_SUCCESS) {
        w->state = WIRE_UP;
        w->ev.up(w->ctx);
        return 1;
    }
    if (rc == SSH_AUTH_ERROR && !ssh_is_connected(w->s)) {
        wire_broken(w, "login");
        return 1;
    }
    if (w->attempt <= w->login->keys->n)
        auth_note(w);
    w->attempt++;
    w->partial = rc == SSH_AUTH_PARTIAL;
    if (w->asked && !w->partial && !(ssh_userauth_list(w->s, NULL) & SSH_AUTH_METHOD_PUBLICKEY)) {
        tried(w, "the server takes no public keys", "");
        auth_failed(w);
    } else if (w->partial || w->attempt > w->login->keys->n + !w->asked) {
        auth_failed(w);
    }
    return 1;
}

static int step_connect(struct ssh_wire *w)
{
    struct err e = ERR_INIT;
    int rc = ssh_connect(w->s);

    if (!w->unblocked) /* libssh took it off the socket it was given, in the first call */
        fcntl(w->fd, F_SETFL, fcntl(w->fd, F_GETFL) | O_NONBLOCK);
    w->unblocked = 1;
    if (rc == SSH_AGAIN)
        return 0;
    if (rc != SSH_OK)
        wire_broken(w, "SSH handshake");
    else if (check_host_key(w, &e))
        wire_down(w, &e, 0);
    else
        w->state = WIRE_AUTH;
    return 1;
}

static int step_streams(struct ssh_wire *w)
{
    int moved = 0;

    ssh_execute_message_callbacks(w->s); /* a stream that is at its end reads no packet */
    for (struct ssh_stream *s = w->streams; s && !w->closing; s = s->next)
        moved |= stream_pump(s);
    if (!moved && !w->closing && !ssh_is_connected(w->s))
        wire_broken(w, "connection lost");
    return moved;
}

static void reap_streams(struct ssh_wire *w)
{
    for (struct ssh_stream **at = &w->streams; *at;) {
        struct ssh_stream *s = *at;
        if (s->closed) {
            *at = s->next;
            stream_free(s);
        } else {
            at = &s->next;
        }
    }
}

static void on_handle_closed(uv_handle_t *h)
{
    struct ssh_wire *w = h->data;

    if (--w->handles)
        return;
    buf_clear(&w->tried);
    free(w);
}

static void wire_finish(struct ssh_wire *w)
{
    for (struct ssh_stream *s = w->streams; s; s = s->next)
        s->closed = 1;
    reap_streams(w);
    uv_close((uv_handle_t *)&w->poll, on_handle_closed);
    uv_close((uv_handle_t *)&w->idle, on_handle_closed);
    uv_close((uv_handle_t *)&w->timer, on_handle_closed);
    ssh_disconnect(w->s);
    ssh_free(w->s);
    w->s = NULL;
}

static void on_ready(uv_poll_t *p, int status, int events);

static void pump(struct ssh_wire *w)
{
    int moved = 1, events = UV_READABLE;

    uv_idle_stop(&w->idle);
    w->busy = 1;
    for (int i = 0; i < ROUNDS && moved && !w->closing && w->state != WIRE_DEAD; i++)
        moved = w->state == WIRE_CONNECT ? step_connect(w)
                : w->state == WIRE_UP    ? step_streams(w)
                                         : step_auth(w);
    w->busy = 0;
    if (w->closing) {
        wire_finish(w);
        return;
    }
    reap_streams(w);
    if (w->state == WIRE_DEAD) {
        uv_poll_stop(&w->poll);
        return;
    }
    if (ssh_get_poll_flags(w->s) & SSH_WRITE_PENDING)
        events |= UV_WRITABLE;
    if (events != w->watched) /* libuv tells the kernel again even when nothing changes */
        uv_poll_start(&w->poll, events, on_ready);
    w->watched = events;
    if (moved)
        ssh_wire_kick(w);
}

static void on_ready(uv_poll_t *p, int status, int events)
{
    struct ssh_wire *w = p->data;

    w->watched = status < 0 ? 0 : w->watched; /* after an error libuv has stopped the handle */
    pump(w);
}

static void on_idle(uv_idle_t *h)
{
    pump(h->data);
}

void ssh_wire_kick(struct ssh_wire *w)
{
    if (!w->closing && w->s)
        uv_idle_start(&w->idle, on_idle);
}

int ssh_wire_open(struct ssh_wire **out, uv_loop_t *loop, int fd, const struct ssh_login *l,
                  const struct ssh_wire_events *ev, void *ctx, struct err *err)
{
    struct ssh_wire *w = xcalloc(1, sizeof *w);
    ssh_session s = ssh_new();
    int no = 0;
    unsigned port = (unsigned)l->port;

    if (!s || ssh_options_set(s, SSH_OPTIONS_PROCESS_CONFIG, &no) ||
        ssh_options_set(s, SSH_OPTIONS_HOST, l->host) || ssh_options_set(s, SSH_OPTIONS_PORT, &port) ||
        ssh_options_set(s, SSH_OPTIONS_USER, l->user) || ssh_options_set(s, SSH_OPTIONS_FD, &fd) ||
        /* keys on record are compared in known_hosts.c: libssh would read the files for every host */
        ssh_options_set(s, SSH_OPTIONS_KNOWNHOSTS, "/dev/null") ||
        ssh_options_set(s, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null") ||
        ssh_options_set(s, SSH_OPTIONS_HOSTKEYS, l->algorithms) ||
        ssh_options_set(s, SSH_OPTIONS_SSH_DIR, "/dev/null") || /* or the name service is asked where home is */
        (l->agent_socket && ssh_options_set(s, SSH_OPTIONS_IDENTITY_AGENT, l->agent_socket))) {
        err_set(err, ERR_NODE, "%s: libssh refuses the settings: %s", l->name,
                s ? ssh_get_error(s) : "out of memory");
        ssh_free(s), close(fd), free(w);
        return -1;
    }
    ssh_set_blocking(s, 0);
    w->s = s, w->fd = fd, w->loop = loop, w->login = l, w->ev = *ev, w->ctx = ctx, w->handles = 3;
    uv_poll_init(loop, &w->poll, fd);
    uv_idle_init(loop, &w->idle);
    uv_timer_init(loop, &w->timer);
    w->poll.data = w->idle.data = w->timer.data = w;
    ssh_wire_kick(w);
    *out = w;
    return 0;
}

void ssh_wire_close(struct ssh_wire *w)
{
    if (!w || w->closing)
        return;
    w->closing = 1;
    if (!w->busy)
        wire_finish(w);
}

int ssh_wire_unsent(const struct ssh_wire *w)
{
    return w->s && (ssh_get_poll_flags(w->s) & SSH_WRITE_PENDING) != 0;
}

int ssh_wire_closing(const struct ssh_wire *w)
{
    return w->closing;
}
