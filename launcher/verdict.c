/* How a job ended: the failures as they came, the one that is to blame, the messages, the exit status. */
#include "launcher/front.h"

#include "engine/base/boot.h"
#include "engine/base/clock.h"
#include "hostfile/nodelist.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void front_failed(struct front *f, enum failure_kind kind, int rank, int node, double wall)
{
    enum job_state s = f->machine.state;
    int *recorded = rank >= 0 ? &f->rank[rank].recorded : &f->node[node].failed;

    if (s != JOB_SPAWNING && s != JOB_RUNNING && s != JOB_JUDGING &&
        !(kind == FAILED_HOST && s < JOB_REAPING && !f->stop_signal))
        return; /* we end them ourselves: that they end is no failure */
    if (*recorded) { /* first a report, then the exit: one failure, of the graver kind */
        struct failure *old = &f->failures[*recorded - 1];

        if (kind < old->kind && old->kind != FAILED_PEER)
            old->kind = kind;
        return;
    }
    ARRAY_GROW(f->failures, f->nfailures, f->failures_cap);
    f->failures[f->nfailures++] = (struct failure){kind, rank, node, wall};
    *recorded = f->nfailures;
    if (kind != FAILED_HOST || f->node[node].down != 2) /* a host that says so itself; else EV_NODE_LOST follows */
        machine_post(&f->machine, EV_RANK_FAILED);
}

void front_laggards(const struct front *f, int (*has)(const struct front_node *), struct buf *out)
{
    char **names = xcalloc((size_t)f->place.nodes, sizeof *names);
    int m, n = 0;

    for (m = 0; m < f->place.nodes; m++)
        if (!has(&f->node[m]))
            names[n++] = f->hosts->host[m].name;
    nodelist_print(names, n, out);
    free(names);
}

/* Hosts that failed with the same words share one line: "w[1-3]: words". */
static enum err_code print_node_errors(struct front *f)
{
    char **names = xcalloc((size_t)f->place.nodes, sizeof *names);
    uint8_t *done = xcalloc((size_t)f->place.nodes, 1);
    enum err_code worst = ERR_OK;
    int m, k;

    for (m = 0; m < f->place.nodes; m++) {
        struct buf list = BUF_INIT;
        int n = 0;

        if (done[m] || !f->node[m].why.code)
            continue;
        for (k = m; k < f->place.nodes; k++)
            if (!done[k] && f->node[k].why.code && !strcmp(f->node[k].why.text, f->node[m].why.text)) {
                done[k] = 1;
                names[n++] = f->hosts->host[k].name;
            }
        nodelist_print(names, n, &list);
        log_error("%s: %s", buf_str(&list), f->node[m].why.text);
        buf_clear(&list);
        if (!worst || err_class(&f->node[m].why) != ERR_CLASS_INPUT)
            worst = f->node[m].why.code;
    }
    free(names);
    free(done);
    return worst;
}

/* Not as a message, whose end is cut when it is long: the end is what matters. */
static void print_tail(struct front *f, int rank)
{
    struct buf tail = BUF_INIT, text = BUF_INIT;
    size_t at, n;

    if (f->place.world < 2)
        return; /* it stands right above */
    output_tail(f->output, rank, &tail);
    buf_addf(&text, "ds-launch: last lines of rank %d:\n", rank);
    for (at = 0; at < tail.len; at += n + 1) {
        const char *nl = memchr(tail.data + at, '\n', tail.len - at);

        n = nl ? (size_t)(nl - tail.data) - at : tail.len - at;
        buf_adds(&text, "  | ");
        buf_add(&text, tail.data + at, n);
        buf_addc(&text, '\n');
    }
    if (tail.len) {
        writer_put(f->term, f->out[2], text.data, text.len, -1, 0);
        writer_flush(f->term, -1);
    }
    buf_clear(&tail);
    buf_clear(&text);
}

/* The first line of what the rank left in its error file, as the terminal may have it. */
static void add_error(const char *said, struct buf *text)
{
    int i;

    if (said)
        buf_adds(text, ": ");
    for (i = 0; said && said[i] && said[i] != '\n' && i < 500; i++)
        buf_addc(text, (unsigned char)said[i] < ' ' || said[i] == 127 ? '?' : said[i]);
}

/* Where in its training the rank was killed; nothing for what has no steps. */
static void add_where(const struct rank_end *e, struct buf *text)
{
    static const char *const in[] = {[PHASE_DATA] = "data", [PHASE_FORWARD] = "forward", [PHASE_BACKWARD] = "backward",
                                     [PHASE_REDUCE] = "reduce", [PHASE_UPDATE] = "update"};
    unsigned long long step = e->step;

    if (e->phase >= PHASE_DATA && e->phase <= PHASE_UPDATE)
        buf_addf(text, " in step %llu (%s)", step + 1, in[e->phase]);
    else if (step)
        buf_addf(text, " after step %llu%s", step, e->phase == PHASE_EVAL ? " (evaluation)"
                                                 : e->phase == PHASE_SAVE ? " (save)" : "");
}

static int blame_rank(const struct front *f, const struct failure *c, struct buf *text)
{
    const struct front_rank *rk = &f->rank[c->rank];

    buf_addf(text, "rank %d on %s", c->rank, f->rank_host[c->rank]);
    if (rk->pid)
        buf_addf(text, " (pid %d)", rk->pid);
    if (rk->end.signal && c->kind == FAILED_SIGNAL) {
        buf_addf(text, " was killed by signal %d (%s)%s", rk->end.signal, strsignal(rk->end.signal),
                 rk->end.oom ? ": out of memory, the kernel chose it" : "");
        add_where(&rk->end, text);
        add_error(rk->error, text);
        return 128 + rk->end.signal;
    }
    if (rk->said)
        buf_addf(text, rk->pid ? " failed: %s" : " did not start: %s", rk->said->text);
    else
        buf_addf(text, " ended with code %d", rk->end.code);
    add_error(rk->error, text);
    if (rk->end.code > 0 || !rk->said)
        return rk->end.code > 0 ? rk->end.code : 1;
    return err_exit_code(rk->said) ? err_exit_code(rk->said) : 1;
}

static const struct failure *cause(const struct front *f)
{
    return &f->failures[judge(f->failures, f->nfailures, f->task->engine)];
}

int front_blame(const struct front *f, struct buf *text)
{
    const struct failure *c = cause(f);
    int status = 1, i, followers = 0, same_node = 0;

    for (i = 0; i < f->nfailures; i++) {
        followers += &f->failures[i] != c && f->failures[i].rank >= 0;
        same_node += &f->failures[i] != c && f->failures[i].rank >= 0 && c->rank < 0 &&
                     f->failures[i].node == c->node;
    }
    followers -= same_node;
    if (c->rank >= 0)
        status = blame_rank(f, c, text);
    else
        buf_addf(text, "host %s %s: %s", f->hosts->host[c->node].name,
                 c->kind == FAILED_HOST ? "was lost" : "failed", f->node[c->node].why.text);
    if (followers)
        buf_addf(text, "; %d rank%s followed", followers, followers == 1 ? "" : "s");
    return status;
}

static int print_blame(struct front *f)
{
    struct buf text = BUF_INIT;
    int status = front_blame(f, &text);

    if (f->restarts)
        buf_addf(&text, "; it had been started again %d time%s", f->restarts, f->restarts == 1 ? "" : "s");
    log_error("%s", buf_str(&text));
    buf_reset(&text);
    if (cause(f)->rank >= 0) {
        print_tail(f, cause(f)->rank);
        front_logs_where(f, cause(f)->rank, &text);
    }
    if (text.len)
        log_error("its output is in %s", text.data);
    buf_clear(&text);
    return status;
}

static void print_summary(const struct front *f)
{
    const struct progress *p = &f->progress;
    struct buf b = BUF_INIT;

    if (!f->task->engine || !p->steps || f->o->quiet)
        return;
    buf_addf(&b, "%.0f step%s", p->step, p->step == 1 ? "" : "s");
    if (p->first_step > 1)
        buf_addf(&b, ", %d in this run", p->steps);
    buf_addf(&b, ", loss %.4f -> %.4f", p->first_loss, p->loss);
    if (p->have_valid)
        buf_addf(&b, ", validation loss %.4f", p->valid_loss);
    if (p->skipped > 0)
        buf_addf(&b, ", %.0f steps skipped (not finite)", p->skipped);
    buf_adds(&b, ", ");
    progress_count(progress_rate(p), &b);
    buf_adds(&b, " tokens/s, ");
    progress_time(clock_wall() - f->began_wall, &b);
    buf_addf(&b, "\nrun folder %s\n", f->run_dir);
    writer_put(f->term, f->out[1], b.data, b.len, -1, 0);
    writer_flush(f->term, -1);
    buf_clear(&b);
}

static int dry_run_said(const struct front *f)
{
    struct buf map = BUF_INIT;

    front_print_map(f, &map);
    writer_put(f->term, f->out[1], map.data, map.len, -1, 0);
    writer_flush(f->term, -1);
    buf_clear(&map);
    if (!f->o->quiet)
        log_info("%d rank%s on %d node%s: every check passed, nothing was started (--dry-run)",
                 f->place.world, f->place.world == 1 ? "" : "s", f->place.nodes,
                 f->place.nodes == 1 ? "" : "s");
    return 0;
}

static void add_word(struct buf *b, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";

    if (b->len)
        buf_addc(b, ' ');
    if (*word && !word[strspn(word, plain)])
        buf_adds(b, word);
    else
        buf_add_quoted(b, word);
}

static int resumes_by_itself(const struct options *o)
{
    int i;

    for (i = 0; i < o->set.n; i++)
        if (!strcmp(o->set.row[i].path, "run.resume"))
            return !strcmp(o->set.row[i].value, "auto");
    return 0;
}

/* A whole step-N is one before `latest` names it. */
static int has_checkpoint(const char *run_dir)
{
    char *folder = xasprintf("%s/ckpt", run_dir);
    DIR *d = opendir(folder);
    struct dirent *e;
    int there = 0;

    while (d && !there && (e = readdir(d)))
        if (!strncmp(e->d_name, "step-", 5) && !e->d_name[5 + strspn(e->d_name + 5, "0123456789")]) {
            char *manifest = xasprintf("%s/%s/manifest.json", folder, e->d_name);

            there = !access(manifest, F_OK);
            free(manifest);
        }
    if (d)
        closedir(d);
    free(folder);
    return there;
}

/* A job that did not come to its end can go on where it saved: by the command that began it, and what that lacks.
 * Where --resume named a checkpoint, the later auto counts. */
static void say_resume(const struct front *f)
{
    struct buf b = BUF_INIT;
    int i;

    if (f->run_dir_made && !f->o->quiet && has_checkpoint(f->run_dir)) {
        for (i = 0; i < f->o->nline; i++)
            add_word(&b, f->o->line[i]);
        if (!f->o->run_dir) {
            add_word(&b, "--run-dir");
            add_word(&b, f->run_dir);
        }
        if (!resumes_by_itself(f->o))
            buf_adds(&b, " --resume auto");
        log_info("go on with: %s", buf_str(&b));
    }
    buf_clear(&b);
}

int front_verdict(struct front *f)
{
    enum err_code nodes;
    int status = 0;

    print_summary(f);
    if (f->nfailures) {
        status = print_blame(f);
    } else if (f->trouble.code || (f->losses && !f->kv) || f->check_failures) {
        struct err e = f->trouble;

        nodes = print_node_errors(f);
        if (f->trouble.code)
            log_error("%s", f->trouble.text);
        else
            e.code = nodes;
        status = err_exit_code(&e) ? err_exit_code(&e) : 1;
    }
    if (f->stop_signal && !f->nfailures) {
        log_info("ended by %s", f->stop_signal == SIGPIPE ? "its reader" : strsignal(f->stop_signal));
        status = 128 + f->stop_signal;
    } else if (!status && f->o->dry_run) {
        status = dry_run_said(f);
    }
    if (status)
        say_resume(f);
    if (!status && writer_error(f->term)) { /* what the caller will look for is not there */
        log_error("the job ended well, but not all of its output could be written: %s",
                  strerror(writer_error(f->term)));
        status = 1;
    }
    if (f->bug && !status)
        status = 1;
    front_event(f, "done", ",\"code\":%d,\"step\":%.0f", status, f->progress.step);
    return status;
}
