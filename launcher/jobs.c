/* ps and kill: the jobs of this user on this machine, through their control sockets. */
#include "launcher/subcommands.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "launcher/control.h"
#include "launcher/jsonget.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct job_line {
    char *id, *json;
    size_t n;
    double began;
};

struct job_list {
    struct job_line *job;
    int n, cap;
};

static void collect(void *ctx, const char *id, const char *json, size_t n)
{
    struct job_list *all = ctx;
    struct job_line j = {NULL, NULL, n, 0};

    while (j.n && json[j.n - 1] == '\n')
        j.n--;
    if (!jsonget_valid(json, j.n))
        return;
    jsonget_number(json, j.n, "began", &j.began);
    j.id = xstrdup(id);
    j.json = xstrndup(json, j.n);
    ARRAY_GROW(all->job, all->n, all->cap);
    all->job[all->n++] = j;
}

static void list_clear(struct job_list *all)
{
    int i;

    for (i = 0; i < all->n; i++) {
        free(all->job[i].id);
        free(all->job[i].json);
    }
    free(all->job);
}

static int by_age(const void *a, const void *b)
{
    double x = ((const struct job_line *)a)->began, y = ((const struct job_line *)b)->began;

    return (x > y) - (x < y);
}

/* What a terminal can take: no control character of a command line reaches it. */
static void add_field(struct buf *b, const struct job_line *j, const char *key, int width, int cut)
{
    struct buf v = BUF_INIT;
    size_t i;

    if (jsonget_string(j->json, j->n, key, &v))
        buf_adds(&v, "-");
    for (i = 0; i < v.len; i++)
        if ((unsigned char)v.data[i] < ' ' || v.data[i] == 127)
            v.data[i] = ' ';
    if (cut && v.len > (size_t)width) {
        buf_addf(b, "%.*s... ", width - 3, v.data);
        buf_clear(&v);
        return;
    }
    buf_addf(b, "%-*s ", width, buf_str(&v));
    buf_clear(&v);
}

static void add_age(struct buf *b, double seconds)
{
    char text[32];
    long s = seconds < 0 ? 0 : (long)seconds;

    if (s < 3600)
        snprintf(text, sizeof text, "%ld:%02ld", s / 60, s % 60);
    else if (s < 86400)
        snprintf(text, sizeof text, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, sizeof text, "%ldd%ldh", s / 86400, s / 3600 % 24);
    buf_addf(b, "%8s  ", text);
}

static void print_table(const struct job_list *all, struct buf *b)
{
    int i;

    buf_addf(b, "%-12s %-10s %-20s %6s %8s  %s\n", "JOB", "STATE", "HOSTS", "RANKS", "AGE", "COMMAND");
    for (i = 0; i < all->n; i++) {
        const struct job_line *j = &all->job[i];
        double world = 0;

        jsonget_number(j->json, j->n, "world", &world);
        buf_addf(b, "%-12s ", j->id);
        add_field(b, j, "state", 10, 0);
        add_field(b, j, "hosts", 20, 1);
        buf_addf(b, "%6.0f ", world);
        add_age(b, clock_wall() - j->began);
        add_field(b, j, "command", 0, 0);
        while (b->len && b->data[b->len - 1] == ' ')
            b->data[--b->len] = 0;
        buf_addc(b, '\n');
    }
}

int cmd_ps(const struct options *o)
{
    struct job_list all = {NULL, 0, 0};
    struct buf b = BUF_INIT;
    int i, status = 0;

    if (o->argc > 1) {
        log_error("ds-launch ps: '%s' is one word too many", o->argv[1]);
        return 2;
    }
    control_list(collect, &all);
    if (all.n)
        qsort(all.job, (size_t)all.n, sizeof *all.job, by_age);
    if (o->json) {
        for (i = 0; i < all.n; i++)
            buf_addf(&b, "%s%s", i ? ",\n " : "", all.job[i].json);
        printf("[%s]\n", buf_str(&b));
    } else {
        print_table(&all, &b);
        fputs(buf_str(&b), stdout);
    }
    if (fflush(stdout)) {
        log_error("cannot write the output: %m");
        status = 1;
    }
    buf_clear(&b);
    list_clear(&all);
    return status;
}

/* ---- kill */

/* Where a run folder says that its job is reached; 0: word names no run folder. */
static int read_run(const char *word, char **socket, char **host)
{
    char *path = xasprintf("%s/job.json", word);
    FILE *f = fopen(path, "re");
    struct buf text = BUF_INIT, a = BUF_INIT, b = BUF_INIT;
    char part[4096];
    size_t n;

    free(path);
    while (f && (n = fread(part, 1, sizeof part, f)) > 0)
        buf_add(&text, part, n);
    if (f)
        fclose(f);
    while (text.len && text.data[text.len - 1] == '\n')
        text.len--;
    if (jsonget_string(buf_str(&text), text.len, "control", &a) ||
        jsonget_string(buf_str(&text), text.len, "host", &b))
        buf_reset(&a);
    buf_clear(&text);
    *socket = a.len ? buf_detach(&a) : NULL;
    *host = *socket ? buf_detach(&b) : NULL;
    buf_clear(&a);
    buf_clear(&b);
    return *socket != NULL;
}

/* The job whose id begins with word, or whose name is word: one, not several. Owned; NULL and err. */
static char *find_job(const char *word, struct err *err)
{
    struct job_list all = {NULL, 0, 0};
    char *id = NULL;
    int i, found = 0;

    control_list(collect, &all);
    for (i = 0; i < all.n; i++) {
        struct buf name = BUF_INIT;
        int same = !strncmp(all.job[i].id, word, strlen(word));

        if (!jsonget_string(all.job[i].json, all.job[i].n, "name", &name))
            same |= !strcmp(buf_str(&name), word);
        buf_clear(&name);
        if (same && !found++)
            id = xstrdup(all.job[i].id);
    }
    list_clear(&all);
    if (found == 1)
        return id;
    free(id);
    if (found)
        err_set(err, ERR_INPUT, "%d jobs are called %s; give more of the id that ds-launch ps prints", found,
                word);
    else
        err_set(err, ERR_INPUT, "no job %s of this user runs on this machine; see ds-launch ps", word);
    return NULL;
}

/* One word for the shell at the other end of ssh. */
static char *quoted(const char *word)
{
    struct buf b = BUF_INIT;

    buf_add_quoted(&b, word);
    return buf_detach(&b);
}

/* A job that was started on another host is told there, by this program under the same path. */
static int kill_there(const char *host, const char *socket, int signo, struct err *err)
{
    char path[4096], number[16], *self, *job;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    path[n > 0 ? n : 0] = 0;
    self = quoted(path);
    job = quoted(socket);
    snprintf(number, sizeof number, "%d", signo);
    execlp("ssh", "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-T", "--", host, self, "kill", "--signal",
           number, job, (char *)NULL);
    err_set(err, ERR_INPUT_FILE, "the job was started on %s, and ssh cannot be started to tell it: %m; "
            "run ds-launch kill %s there", host, job);
    free(self);
    free(job);
    return -1;
}

static int kill_one(const char *word, int signo, struct err *err)
{
    char *job = NULL, *host = NULL, self[256] = "", request[32];
    struct buf answer = BUF_INIT;
    struct stat st;
    int rc = -1;

    gethostname(self, sizeof self - 1);
    if (*word == '/' && !lstat(word, &st) && S_ISSOCK(st.st_mode))
        job = xstrdup(word);
    else if (!read_run(word, &job, &host))
        job = find_job(word, err);
    snprintf(request, sizeof request, "signal %d\n", signo);
    if (job && host && strcmp(host, self))
        rc = kill_there(host, job, signo, err);
    else if (job)
        rc = control_ask(job, request, &answer, err);
    buf_clear(&answer);
    free(job);
    free(host);
    return rc;
}

int cmd_kill(const struct options *o)
{
    struct err err = ERR_INIT;
    int signo = control_signal(o->signal ? o->signal : "TERM", &err);

    if (o->argc != 2 && signo >= 0)
        signo = err_set(&err, ERR_INPUT, o->argc < 2 ? "ds-launch kill: name a job; see ds-launch ps"
                                                     : "ds-launch kill takes one job, but %s stands there too",
                        o->argc > 2 ? o->argv[2] : "");
    if (signo >= 0 && !kill_one(o->argv[1], signo, &err))
        return 0;
    log_error("%s", err.text);
    return err_exit_code(&err);
}
