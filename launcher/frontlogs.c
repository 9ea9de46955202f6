/* torchrun's files of output: DIR/ID_XXXXXX/attempt_N/RANK/stdout.log and stderr.log, by --log-dir, --tee and
 * --redirects; and which ranks are shown at all. Every byte is counted once by the writer of files, whether it is
 * written or not, since a node's credit comes back when both writers are done with it. */
#include "launcher/front.h"

#include "launcher/torchlog.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HIDDEN 2 /* the bits of hidden streams, shifted by so many */

/* What happens to a rank's streams: bits of those that go to files, and of those that are not shown. */
static uint8_t how_of(const struct torch_options *t, int local)
{
    int tee = torchlog_which(t->tee, local), redirect = torchlog_which(t->redirects, local), hidden = redirect & ~tee;
    int files = tee | redirect;

    if (t->log_dir && !t->tee && !t->redirects)
        files = TORCHLOG_OUT | TORCHLOG_ERR;
    if (!torchlog_filter(t->ranks_shown, local))
        hidden = TORCHLOG_OUT | TORCHLOG_ERR;
    return (uint8_t)(files | hidden << HIDDEN);
}

/* DIR is made with what is above it; below it stands a new folder of this launch. */
static int make_base(struct front *f, struct err *err)
{
    const char *dir = f->o->torch.log_dir, *id = f->o->torch.run_id ? f->o->torch.run_id : f->task->job_id, *tmp;
    char *slash;

    if (f->task->logs) {
        f->logs = xstrdup(f->task->logs);
        return 0;
    }
    if (dir) {
        char *path = xasprintf("%s/", dir);

        for (slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
            *slash = 0;
            if (mkdir(path, 0777) && errno != EEXIST && errno != EROFS) {
                err_set(err, ERR_INPUT_FILE, "--log-dir: cannot make %s: %m", path);
                free(path);
                return -1;
            }
            *slash = '/';
        }
        free(path);
    }
    tmp = getenv("TMPDIR");
    f->logs = dir ? xasprintf("%s/%s_XXXXXX", dir, id)
                  : xasprintf("%s/ds-launch_%s_XXXXXX", tmp && *tmp ? tmp : "/tmp", id);
    for (slash = strrchr(f->logs, '_') - strlen(id); *slash; slash++)
        if (*slash == '/')
            *slash = '_'; /* an id is one name */
    if (!mkdtemp(f->logs))
        return err_set(err, ERR_INPUT_FILE, "cannot make a folder for output below %s: %m", dir ? dir : "TMPDIR");
    front_say(f, LOG_INFO, "output of the ranks: %s", f->logs);
    return 0;
}

int front_logs_open(struct front *f, struct err *err)
{
    const struct torch_options *t = &f->o->torch;
    int r, files = 0;

    if (!t->log_dir && !t->tee && !t->redirects && !t->ranks_shown)
        return 0;
    f->how = xcalloc((size_t)f->place.world, 1);
    for (r = 0; r < f->place.world; r++) {
        f->how[r] = how_of(t, f->place.rank[r].local_rank);
        files |= f->how[r] & ((1 << HIDDEN) - 1);
    }
    if (!files)
        return 0;
    f->stream_log = xcalloc(2 * (size_t)f->place.world, sizeof *f->stream_log);
    return make_base(f, err);
}

static int make_folder(const char *path)
{
    return mkdir(path, 0700) && errno != EEXIST ? -1 : 0;
}

/* The sinks of this attempt. A folder that can't be made is told by the writer when it opens the files there. */
void front_logs_attempt(struct front *f)
{
    static const char *const names[] = {"stdout.log", "stderr.log"};
    char *attempt, *folder, *path;
    int r, k;

    if (!f->stream_log)
        return;
    attempt = xasprintf("%s/attempt_%d", f->logs, f->restarts);
    make_folder(attempt);
    for (r = 0; r < f->place.world; r++) {
        folder = xasprintf("%s/%d", attempt, r);
        if (f->how[r] & ((1 << HIDDEN) - 1))
            make_folder(folder);
        for (k = 0; k < 2; k++) {
            path = xasprintf("%s/%s", folder, names[k]);
            if (f->stream_log[2 * r + k])
                writer_file_ends(f->files, f->stream_log[2 * r + k]); /* of the attempt before */
            f->stream_log[2 * r + k] = f->how[r] & (1 << k) ? writer_file(f->files, path) : NULL;
            free(path);
        }
        free(folder);
    }
    free(attempt);
}

void front_logs_put(struct front *f, int node, int rank, int stream, const char *data, size_t n)
{
    struct sink *s = f->stream_log[2 * rank + stream - 1];
    int counted = f->rank_log != NULL; /* by the file of --enable_each_rank_log */

    if (s)
        writer_put(f->files, s, data, n, counted ? -1 : node, counted ? 0 : n);
    else if (!counted)
        writer_put(f->files, f->out[stream], NULL, 0, node, n);
}

int front_logs_shown(const struct front *f, int rank, int stream)
{
    return !f->how || !(f->how[rank] >> HIDDEN & 1 << (stream - 1));
}

void front_logs_where(const struct front *f, int rank, struct buf *out)
{
    if (f->stream_log && f->how[rank] & ((1 << HIDDEN) - 1))
        buf_addf(out, "%s/attempt_%d/%d", f->logs, f->restarts, rank);
}

void front_logs_clear(struct front *f)
{
    free(f->how);
    free(f->stream_log);
    free(f->logs);
}
