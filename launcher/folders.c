/* The folders that a job leaves files in: the run folder, the one of --enable-each-rank-log, torchrun's. They are made
 * when every check has passed: not before, so that a job that cannot start leaves nothing behind, and not later, so
 * that a folder that cannot be made starts nothing. A file system may hang, so none of it is done in the loop. */
#include "launcher/front.h"

#include "engine/base/fault.h"
#include "launcher/rundir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct folders {
    struct front *front;      /* in the loop only */
    char *rank_logs;          /* each NULL: none */
    char *logs_base, *logs;   /* torchrun's: what is made, with what is above it, and in it the new folder */
    char *run_dir, *job_file;
    int again;                /* the run folder has a run in it already */
    int lock;                 /* see rundir_lock */
    struct buf job_json, settings;
    struct err err;
};

static void add_json_string(struct buf *b, const char *key, const char *value)
{
    buf_addf(b, ",\"%s\":\"", key);
    buf_add_json(b, value, strlen(value));
    buf_addc(b, '"');
}

/* job.json: who runs this, where. */
static void print_job_json(const struct front *f, struct buf *b)
{
    char self[256] = "";
    int m;

    gethostname(self, sizeof self - 1);
    /* the outer process: the one that takes signals (keeper.h) */
    buf_addf(b, "{\"pid\":%d,\"began\":%.3f,\"world\":%d", (int)getppid(), f->began_wall, f->place.world);
    add_json_string(b, "job_id", f->task->job_id);
    add_json_string(b, "host", self);
    add_json_string(b, "cwd", f->task->cwd);
    add_json_string(b, "job_file", f->task->job_file);
    add_json_string(b, "launcher", f->ops->name);
    if (f->control)
        add_json_string(b, "control", control_path(f->control));
    buf_adds(b, ",\"nodes\":[");
    for (m = 0; m < f->place.nodes; m++) {
        buf_addf(b, "%s{\"first_rank\":%d,\"ranks\":%d", m ? "," : "", f->place.first[m],
                 f->place.first[m + 1] - f->place.first[m]);
        add_json_string(b, "host", f->hosts->host[m].name);
        add_json_string(b, "address", f->address[m].address);
        buf_addc(b, '}');
    }
    buf_adds(b, "]}\n");
}

/* ---- on the thread ---- */

/* The job file as it was written, and the settings as they are used. */
static int copy_job(const struct folders *d, struct err *err)
{
    const char *slash = strrchr(d->job_file, '/');
    FILE *in = fopen(d->job_file, "re");
    struct buf b = BUF_INIT;
    char part[4096];
    size_t n;
    int rc;

    if (!in)
        return err_set(err, ERR_INPUT_FILE, "cannot read %s again: %m", d->job_file);
    while ((n = fread(part, 1, sizeof part, in)) > 0)
        buf_add(&b, part, n);
    fclose(in);
    rc = rundir_write(d->run_dir, slash ? slash + 1 : d->job_file, buf_str(&b), b.len, err);
    buf_clear(&b);
    return rc;
}

/* --enable-each-rank-log: the folder, made when it is not there. */
static int make_rank_logs(const char *path, struct err *err)
{
    struct stat st;

    if (mkdir(path, 0700) && errno != EEXIST)
        return err_set(err, ERR_JOB_IO, "cannot make the log folder %s: %m", path);
    if (stat(path, &st) || !S_ISDIR(st.st_mode))
        return err_set(err, ERR_INPUT, "--enable-each-rank-log %s: it is a file, name a folder", path);
    return 0;
}

static int make_logs(struct folders *d, struct err *err)
{
    char *path = d->logs_base ? xasprintf("%s/", d->logs_base) : NULL, *slash;

    for (slash = path ? strchr(path + 1, '/') : NULL; slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(path, 0777) && errno != EEXIST && errno != EROFS) {
            err_set(err, ERR_INPUT_FILE, "--log-dir: cannot make %s: %m", path);
            free(path);
            return -1;
        }
        *slash = '/';
    }
    free(path);
    if (!mkdtemp(d->logs))
        return err_set(err, ERR_INPUT_FILE, "cannot make a folder for output below %s: %m",
                       d->logs_base ? d->logs_base : "TMPDIR");
    return 0;
}

static int make_run_dir(struct folders *d, struct err *err)
{
    if (rundir_make(d->run_dir, d->again, err))
        return -1;
    d->lock = rundir_lock(d->run_dir, err);
    return d->lock == -1 ||
           rundir_write(d->run_dir, "job.json", d->job_json.data, d->job_json.len, err) || copy_job(d, err) ||
           rundir_write(d->run_dir, "settings.ini", buf_str(&d->settings), d->settings.len, err);
}

static void make(void *arg)
{
    struct folders *d = arg;
    int fault = 0;

    fault_hit("folders", &fault); /* a file system that hangs */
    if ((d->rank_logs && make_rank_logs(d->rank_logs, &d->err)) || (d->logs && make_logs(d, &d->err)))
        return;
    if (d->run_dir)
        make_run_dir(d, &d->err);
}

/* ---- in the loop ---- */

static void made(void *arg)
{
    struct folders *d = arg;
    struct front *f = d->front;

    f->folders = NULL;
    if (d->logs && !d->err.code) {
        f->logs = xstrdup(d->logs);
        front_say(f, LOG_INFO, "output of the ranks: %s", f->logs);
    }
    f->run_dir_made = d->run_dir && !d->err.code;
    f->run_lock = d->lock;
    d->lock = -1;
    front_folders_made(f, &d->err);
}

static void folders_free(void *arg)
{
    struct folders *d = arg;

    if (d->lock >= 0)
        close(d->lock);
    free(d->rank_logs);
    free(d->logs_base);
    free(d->logs);
    free(d->run_dir);
    free(d->job_file);
    buf_clear(&d->job_json);
    buf_clear(&d->settings);
    free(d);
}

static char *copy(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

/* Below DIR or TMPDIR stands a new folder of this launch; its id is one name. */
static char *new_logs(const struct front *f)
{
    const struct torch_options *t = &f->o->torch;
    const char *id = t->run_id ? t->run_id : f->task->job_id, *tmp = getenv("TMPDIR");
    char *logs = t->log_dir ? xasprintf("%s/%s_XXXXXX", t->log_dir, id)
                            : xasprintf("%s/ds-launch_%s_XXXXXX", tmp && *tmp ? tmp : "/tmp", id), *slash;

    for (slash = strrchr(logs, '_') - strlen(id); *slash; slash++)
        if (*slash == '/')
            *slash = '_';
    return logs;
}

void front_make_folders(struct front *f)
{
    static const struct aside_work work = {make, made, folders_free};
    struct folders *d;
    struct err none = ERR_INIT;
    int wants_logs = front_logs_wanted(f);

    if (wants_logs && f->task->logs)
        f->logs = xstrdup(f->task->logs);
    if (!f->o->log_dir && !f->run_dir && !(wants_logs && !f->logs)) {
        front_folders_made(f, &none);
        return;
    }
    d = xcalloc(1, sizeof *d);
    d->front = f;
    d->lock = -1;
    d->rank_logs = copy(f->o->log_dir);
    if (wants_logs && !f->logs) {
        d->logs_base = copy(f->o->torch.log_dir);
        d->logs = new_logs(f);
    }
    if (f->run_dir) {
        d->run_dir = xstrdup(f->run_dir);
        d->job_file = xstrdup(f->task->job_file);
        d->again = f->task->job.resume != NULL;
        print_job_json(f, &d->job_json);
        settings_rows_print(&f->task->rows, &d->settings);
    }
    f->folders = aside_run(&f->loop, &work, d);
}
