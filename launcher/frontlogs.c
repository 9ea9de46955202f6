/* torchrun's files of output: DIR/ID_XXXXXX/attempt_N/RANK/stdout.log and stderr.log, by --log-dir, --tee and
 * --redirects; and which ranks are shown at all. Every byte is counted once by the writer of files, whether it is
 * written or not, since a node's credit comes back when both writers are done with it. */
#include "launcher/front.h"

#include "launcher/torchlog.h"

#include <stdlib.h>

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

int front_logs_wanted(struct front *f)
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
    if (files)
        f->stream_log = xcalloc(2 * (size_t)f->place.world, sizeof *f->stream_log);
    return files != 0;
}

/* The sinks of this attempt. They are opened now, as a rank that says nothing has a file, too. */
void front_logs_attempt(struct front *f)
{
    static const char *const names[] = {"stdout.log", "stderr.log"};
    struct sink **s = f->stream_log;
    int r, k;

    for (r = 0; s && r < f->place.world; r++)
        for (k = 0; k < 2; k++, s++) {
            char *path = xasprintf("%s/attempt_%d/%d/%s", f->logs, f->restarts, r, names[k]);

            if (*s)
                writer_file_ends(f->files, *s); /* of the attempt before */
            *s = f->how[r] & (1 << k) ? writer_file(f->files, path) : NULL;
            if (*s)
                writer_put(f->files, *s, NULL, 0, -1, 0);
            free(path);
        }
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
