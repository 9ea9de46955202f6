/* The front end's outgoing side: rank output, our own lines, metrics, events, and the credit for it.
 *
 * Invariant: a node gets credit back for bytes that both writers (terminal and files) are done with, so what
 * is queued anywhere is bounded by the credit that was given out. What needs no credit (metrics, events, words of the
 * agents) is dropped when more than QUEUE_BYTES wait for a writer, and the end says so. */
#include "launcher/front.h"

#include "engine/base/clock.h"
#include "launcher/jsonget.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CREDIT_POOL (8u << 20) /* bytes of output under way from all nodes together */
#define HOLD_BYTES (4u << 20)   /* with prefixes, queued for the terminal: beyond it output waits as it came */
#define CREDIT_MAX (1u << 20)   /* from one node */
#define LIVE_MS 100 /* between two looks of the live line */
#define CREDIT_MIN (2u << 10)
#define QUEUE_BYTES (64u << 20)

static size_t credit_of(const struct front *f)
{
    size_t each = CREDIT_POOL / (size_t)f->place.nodes;

    return each > CREDIT_MAX ? CREDIT_MAX : each < CREDIT_MIN ? CREDIT_MIN : each;
}

static void send_credit(struct front *f, int node, size_t bytes)
{
    struct buf b = BUF_INIT;

    f->node[node].credit += (int64_t)bytes;
    put_u32(&b, (uint32_t)bytes);
    front_send(f, node, MSG_CREDIT, b.data, b.len);
    buf_clear(&b);
}

void front_grant(struct front *f)
{
    int m;

    for (m = 0; m < f->place.nodes; m++)
        send_credit(f, m, credit_of(f));
}

static void give_back(struct front *f, int node)
{
    struct front_node *nd = &f->node[node];
    size_t done = nd->term_done;

    if (f->files && nd->log_done < done)
        done = nd->log_done;
    if (done - nd->credited < credit_of(f) / 8) /* no frame for every line */
        return;
    send_credit(f, node, done - nd->credited);
    nd->credited = done;
}

/* A rank's bytes on their way to the terminal. */
static void show(struct front *f, int node, int rank, int stream, const char *data, size_t n)
{
    if (front_logs_shown(f, rank, stream))
        output_feed(f->output, rank, stream, data, n, clock_ms());
    writer_put(f->term, f->out[stream], NULL, 0, node, n);
}

/* What waited, as far as the terminal keeps up. */
static void show_backlog(struct front *f)
{
    struct backlog_piece *p;

    while (writer_pending(f->term) < HOLD_BYTES && (p = backlog_take(&f->backlog))) {
        show(f, p->node, p->rank, p->stream, p->data, p->n);
        free(p);
    }
}

static void term_done(void *ctx, int node, size_t bytes)
{
    struct front *f = ctx;

    f->node[node].term_done += bytes;
    give_back(f, node);
    show_backlog(f);
}

static void files_done(void *ctx, int node, size_t bytes)
{
    struct front *f = ctx;

    f->node[node].log_done += bytes;
    give_back(f, node);
}

/* Nobody reads our output any more: we end as a program does that gets SIGPIPE. That it cannot be kept (a full disk)
 * ends no training. */
static void term_broken(void *ctx, int fd, int error)
{
    struct front *f = ctx;

    if (fd != STDOUT_FILENO)
        return;
    if (error != EPIPE)
        front_say(f, LOG_WARN, "cannot write standard output: %s; what would still go there is dropped, and the job "
                  "goes on", strerror(error));
    if (error != EPIPE || f->stop_signal)
        return;
    f->stop_signal = SIGPIPE;
    machine_post(&f->machine, EV_STOP);
}

static void files_broken(void *ctx, int fd, int error)
{
}

static int columns(int fd)
{
    struct winsize w;

    return !ioctl(fd, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col - 1 : 79;
}

static void emit(void *ctx, int stream, struct buf *text)
{
    struct front *f = ctx;

    writer_give(f->term, f->out[stream], text, -1, 0);
}

/* At most so many columns of a line; letters of several bytes and colours count as what is seen. */
static size_t cut_columns(const char *line, int columns)
{
    size_t i = 0;

    while (line[i] && columns > 0) {
        if (line[i] == '\033') {
            i += strcspn(line + i, "m") + 1;
            continue;
        }
        for (i++; ((unsigned char)line[i] & 0xc0) == 0x80; i++)
            ;
        columns--;
    }
    return i;
}

/* A rank's progress bar, where no engine's progress line stands. */
static void show_bar(void *ctx, const char *line)
{
    struct front *f = ctx;
    char *text = xstrndup(line, cut_columns(line, columns(f->bar_fd)));

    writer_status(f->term, f->bar_fd, text);
    free(text);
}

static struct output_style style_of(struct front *f)
{
    int terminal = isatty(STDOUT_FILENO);
    struct output_style s = {.prefix = f->place.world > 1 ? PREFIX_RANK : PREFIX_NONE,
                             .fold = f->o->fold,
                             .wall = clock_wall,
                             .emit = emit,
                             .ctx = f};

    if (f->o->prefix_style)
        s.prefix = output_prefix_parse(f->o->prefix_style);
    s.color = output_wants_color(f->o->color, getenv("NO_COLOR"), getenv("CLICOLOR"), getenv("CLICOLOR_FORCE"),
                                 terminal);
    f->bar_fd = terminal ? STDOUT_FILENO : isatty(STDERR_FILENO) ? STDERR_FILENO : -1;
    if (f->bar_fd >= 0 && !f->live)
        s.live = show_bar;
    return s;
}

int front_output_open(struct front *f, struct err *err)
{
    static const struct writer_events events = {term_done, term_broken};
    struct output_style style;
    int r;

    f->rank_host = xcalloc((size_t)f->place.world, sizeof *f->rank_host);
    for (r = 0; r < f->place.world; r++)
        f->rank_host[r] = f->hosts->host[f->place.rank[r].node].name;
    f->live = f->task->engine && isatty(STDERR_FILENO) && !f->o->quiet;
    style = style_of(f);
    f->output = output_create(f->place.world, &style, f->rank_host);
    f->term = writer_create(&f->loop, f->place.nodes, &events, f, err);
    if (!f->term)
        return -1;
    f->out[1] = writer_fd(f->term, STDOUT_FILENO);
    f->out[2] = writer_fd(f->term, STDERR_FILENO);
    return 0;
}

static struct sink *file_in(struct front *f, const char *folder, const char *name)
{
    char *path = xasprintf("%s/%s", folder, name);
    struct sink *s = writer_file(f->files, path);

    free(path);
    return s;
}

int front_output_logs(struct front *f, struct err *err)
{
    static const struct writer_events events = {files_done, files_broken};
    char *logs = f->o->log_dir ? xstrdup(f->o->log_dir) : NULL, name[64], when[32];
    time_t now = (time_t)f->began_wall;
    struct tm tm;
    int r;

    if (!logs && f->run_dir_made)
        logs = xasprintf("%s/logs", f->run_dir);
    if (!logs && !f->stream_log)
        return 0;
    f->files = writer_create(&f->loop, f->place.nodes, &events, f, err);
    if (!f->files) {
        free(logs);
        return -1;
    }
    strftime(when, sizeof when, "%Y%m%d%H%M%S", localtime_r(&now, &tm));
    f->rank_log = logs ? xcalloc((size_t)f->place.world, sizeof *f->rank_log) : NULL;
    for (r = 0; logs && r < f->place.world; r++) {
        if (f->o->log_dir) /* as deepspeed names them: the folder is of many runs */
            snprintf(name, sizeof name, "%s_rank%d.log", when, r);
        else
            snprintf(name, sizeof name, "rank-%d.log", r);
        f->rank_log[r] = file_in(f, logs, name);
    }
    if (f->run_dir_made) {
        f->events = file_in(f, f->run_dir, "events.jsonl");
        f->metrics = file_in(f, f->run_dir, "metrics.jsonl");
    }
    free(logs);
    return 0;
}

/* What the node may owe: the streams of each start may overdraw by what they are ending with. */
static int64_t overdraw_of(const struct front *f, int node)
{
    int64_t streams = 2 * (int64_t)(f->place.first[node + 1] - f->place.first[node]);

    return (streams * (f->restarts + 1) + 1) * MSG_OVERDRAW_BYTES;
}

int front_output(struct front *f, int node, int rank, int stream, const char *data, size_t n, struct err *err)
{
    f->node[node].credit -= (int64_t)n;
    if (f->node[node].credit < -overdraw_of(f, node))
        return err_set(err, ERR_NODE, "its agent sends more output than it was given credit for");
    if (f->rank_log && n)
        writer_put(f->files, f->rank_log[rank], data, n, node, n);
    if (f->stream_log && n)
        front_logs_put(f, node, rank, stream, data, n);
    if (f->backlog.head || writer_pending(f->term) >= HOLD_BYTES)
        backlog_add(&f->backlog, node, rank, stream, data, n);
    else
        show(f, node, rank, stream, data, n);
    return 0;
}

static int has_room(struct front *f, struct writer *w)
{
    int room = writer_pending(w) < QUEUE_BYTES;

    f->dropped += !room;
    return room;
}

void front_say(struct front *f, enum log_level level, const char *fmt, ...)
{
    static const char *const word[] = {"", "warning: ", "", "debug: "};
    struct buf b = BUF_INIT;
    va_list ap;

    if (level > log_level)
        return;
    buf_addf(&b, "ds-launch: %s", word[level]);
    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    buf_addc(&b, '\n');
    if (has_room(f, f->term))
        output_own(f->output, 2, b.data, b.len);
    buf_clear(&b);
}

void front_event(struct front *f, const char *ev, const char *fmt, ...)
{
    struct buf b = BUF_INIT;
    va_list ap;

    if (!f->events)
        return;
    buf_addf(&b, "{\"t\":%.3f,\"ev\":\"%s\",\"epoch\":%u", clock_wall(), ev, f->epoch);
    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    buf_adds(&b, "}\n");
    writer_put(f->files, f->events, b.data, b.len, -1, 0);
    buf_clear(&b);
}

void front_rank_event(struct front *f, uint32_t epoch, int rank, const char *json, size_t n)
{
    struct buf b = BUF_INIT;

    if (!f->events || !jsonget_valid(json, n) || !has_room(f, f->files))
        return;
    while (n && json[n - 1] != '}')
        n--;
    while (n && *json != '{') {
        json++;
        n--;
    }
    buf_addf(&b, "{\"t\":%.3f,\"epoch\":%u,\"rank\":%d%s", clock_wall(), epoch, rank,
             memchr(json, ':', n) ? "," : "");
    buf_add(&b, json + 1, n - 1);
    buf_addc(&b, '\n');
    writer_put(f->files, f->events, b.data, b.len, -1, 0);
    buf_clear(&b);
}

void front_metric(struct front *f, int rank, const char *json, size_t n)
{
    struct buf b = BUF_INIT;
    int64_t now = clock_ms();
    int step;

    if (rank != 0 || !has_room(f, f->term))
        return;
    if (!jsonget_string(json, n, "text", &b)) {
        if (!b.len || b.data[b.len - 1] != '\n')
            buf_addc(&b, '\n');
        output_own(f->output, 1, b.data, b.len);
        buf_clear(&b);
        return;
    }
    step = progress_take(&f->progress, json, n, now);
    if (step < 0)
        return;
    if (f->metrics && has_room(f, f->files)) {
        buf_add(&b, json, n);
        buf_addc(&b, '\n');
        writer_put(f->files, f->metrics, b.data, b.len, -1, 0);
        buf_reset(&b);
    }
    if (f->live && now - f->live_ms < LIVE_MS && f->progress.step < f->progress.max_steps) {
        buf_clear(&b);
        return;
    }
    progress_line(&f->progress, f->place.nodes, f->live ? columns(STDERR_FILENO) : 0, &b);
    if (f->live && f->progress.steps) {
        f->live_ms = now;
        writer_status(f->term, STDERR_FILENO, buf_str(&b));
    } else if (step == 2 && !f->o->quiet) {
        buf_reset(&b);
        progress_valid(&f->progress, &b);
        buf_addc(&b, '\n');
        output_own(f->output, 1, b.data, b.len);
    } else if (step && !f->o->quiet && progress_due(&f->progress, f->task->job.steps_per_print, now)) {
        buf_addc(&b, '\n');
        output_own(f->output, 1, b.data, b.len);
    }
    buf_clear(&b);
}

void front_output_tick(struct front *f)
{
    show_backlog(f);
    output_tick(f->output, clock_ms());
}

void front_output_close(struct front *f)
{
    if (f->live || f->bar_fd >= 0)
        writer_status(f->term, f->live ? STDERR_FILENO : f->bar_fd, "");
    while (f->backlog.head) {
        show_backlog(f);
        writer_flush(f->term, -1);
    }
    output_flush(f->output);
    writer_flush(f->term, -1);
    if (f->files && writer_flush(f->files, 10000))
        log_warn("the log folder does not take its last lines; they are lost");
    if (f->dropped)
        log_warn("%zu messages, metrics or events came faster than they could be written and are lost", f->dropped);
}
