/* Saving a checkpoint over all ranks, in the background: see ckpt.h.
 *
 * ckpt_save copies into the image and wakes the thread; the thread does everything else, so a step
 * waits for the disk only when the save before it is still under way. All files go into the folder
 * .step-N.tmp; when every rank has its file synced there, rank 0 adds the manifest and renames the
 * folder to step-N. So a step-N folder is whole from its first moment, and nothing of an older one
 * is touched before that. Then `latest` is replaced, and what keep no longer covers is removed.
 *
 * Ranks talk through the boot's key space; every value begins with an outcome:
 *
 *     key                    put by   what                   behind the outcome
 *     ckpt/N/SEQ/folder      rank 0   the folder is there
 *     once/ckpt/N/SEQ/R      rank R   its file is written    size, header size, header hash
 *     ckpt/N/SEQ/done        rank 0   committed
 *
 * Invariant: busy is set while the thread works; image, head, step and seq belong to it then.
 */
#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "engine/base/hash.h"
#include "engine/base/wire.h"
#include "engine/ckpt/ckpt.h"
#include "engine/ckpt/files.h"
#include "engine/ckpt/format.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS (3600 * 1000) /* for the slowest disk; a dead rank ends the wait by the abort flag */
#define SEEN_MS 60000

struct ckpt_writer {
    char *dir;
    struct boot *boot;
    int64_t keep;
    pthread_t thread;
    int have_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int busy, quit;
    int left;      /* by ckpt_writer_destroy, while the disk hung: the thread frees it all */
    int64_t until; /* when the save under way is given up */
    int result; /* of the last finished save, not yet polled: 1, -1, 0 none */
    int64_t result_step;
    struct err result_err;

    int64_t step;
    unsigned seq;
    struct image image;
    struct buf head; /* of the manifest (rank 0) */
};

/* ---- outcomes in the key space ---- */

/* Puts rc and err under key, extra behind them. */
static int tell(struct boot *b, const char *key, int rc, const struct err *what,
                const struct buf *extra, struct err *err)
{
    struct buf body = BUF_INIT;

    put_u32(&body, rc < 0 ? (uint32_t)what->code : 0);
    put_str(&body, rc < 0 ? what->text : "");
    if (extra)
        buf_add(&body, extra->data, extra->len);
    rc = b->put(b, key, body.data, body.len, err);
    buf_clear(&body);
    return rc;
}

/* Waits for the outcome under key: its rc and err. extra (NULL: none wanted) gets what is behind it. */
static int hear(struct boot *b, const char *key, int64_t wait_ms, struct buf *extra, struct err *err)
{
    struct reader r;
    void *value;
    uint32_t code;
    char *text;
    size_t n;

    if (b->get(b, key, &value, &n, clock_ms() + wait_ms, err) < 0)
        return -1;
    r = reader_of(value, n);
    code = get_u32(&r);
    text = get_str(&r);
    if (r.failed)
        err_set(err, ERR_JOB_INTERNAL, "key %s is malformed", key);
    else if (code)
        err_set(err, (enum err_code)code, "%s", text);
    else if (extra)
        buf_add(extra, r.p, (size_t)(r.end - r.p));
    free(text);
    free(value);
    return code || r.failed ? -1 : 0;
}

static char *key_of(const struct ckpt_writer *w, const char *what)
{
    return xasprintf("ckpt/%lld/%u/%s", (long long)w->step, w->seq, what);
}

/* Read by rank 0 alone and gone then: a long run saves often, and worlds are large. */
static char *rank_key(const struct ckpt_writer *w, int rank)
{
    return xasprintf(BOOT_ONCE "ckpt/%lld/%u/%d", (long long)w->step, w->seq, rank);
}

/* ---- one save ---- */

static char *tmp_folder(const struct ckpt_writer *w)
{
    return xasprintf("%s/.step-%lld.tmp", w->dir, (long long)w->step);
}

static char *step_folder(const struct ckpt_writer *w)
{
    return xasprintf("%s/step-%lld", w->dir, (long long)w->step);
}

/* Rank 0 makes the folder for all. */
static int make_folder(struct ckpt_writer *w, struct err *err)
{
    char *key = key_of(w, "folder"), *path = tmp_folder(w);
    int rc = 0;

    if (w->boot->rank == 0) {
        struct err failed = ERR_INIT;

        folder_remove(path, NULL);
        rc = folder_make(path, &failed);
        if (tell(w->boot, key, rc, &failed, NULL, err) < 0)
            rc = -1;
        else if (rc < 0)
            *err = failed;
    } else {
        rc = hear(w->boot, key, WAIT_MS, NULL, err);
    }
    free(key);
    free(path);
    return rc;
}

/* This rank's file; its outcome is told to rank 0 in any case. */
static int write_own(struct ckpt_writer *w, struct err *err)
{
    char *folder = tmp_folder(w), *key = rank_key(w, w->boot->rank), *path;
    struct buf extra = BUF_INIT;
    struct err tell_err = ERR_INIT;
    int rc;

    image_seal(&w->image);
    path = xasprintf("%s/rank-%d.safetensors", folder, w->boot->rank);
    rc = file_write(path, w->image.data, w->image.bytes, err);
    put_u64(&extra, w->image.bytes);
    put_u64(&extra, w->image.header_bytes);
    put_u64(&extra, hash64(w->image.data, w->image.header_bytes));
    if (tell(w->boot, key, rc, err, &extra, &tell_err) < 0 && rc == 0) {
        *err = tell_err;
        rc = -1;
    }
    buf_clear(&extra);
    free(key);
    free(path);
    free(folder);
    return rc;
}

/* Rank 0: the outcomes of all ranks. The first failure counts, but all are waited for, so that
 * nobody still writes when the folder is removed. */
static int gather(struct ckpt_writer *w, struct ckpt_file *files, struct err *err)
{
    int64_t until = clock_ms() + WAIT_MS;
    int rc = 0;

    for (int r = 0; r < w->boot->world; r++) {
        struct err one = ERR_INIT;
        struct buf extra = BUF_INIT;
        char *key = rank_key(w, r);

        if (hear(w->boot, key, until - clock_ms(), &extra, &one) == 0) {
            struct reader in = reader_of(extra.data, extra.len);

            files[r] = (struct ckpt_file){xasprintf("rank-%d.safetensors", r), get_u64(&in),
                                          get_u64(&in), get_u64(&in)};
        } else if (rc == 0) {
            *err = one;
            rc = -1;
        }
        buf_clear(&extra);
        free(key);
    }
    return rc;
}

/* The finished folder gets its name. One of this name is there when a run went back and came here
 * again: both change places at once, where the file system can. */
static int move_folder(const char *tmp, const char *to, struct err *err)
{
    char *old;
    int rc;

    if (access(to, F_OK) < 0)
        return file_rename(tmp, to, err);
    if (fault_hit("rename", &errno))
        return err_set(err, ERR_JOB_IO, "%s cannot be renamed to %s: %m", tmp, to);
    if (!fault_hit("exchange", &errno) &&
        renameat2(AT_FDCWD, tmp, AT_FDCWD, to, RENAME_EXCHANGE) == 0) {
        folder_remove(tmp, NULL); /* the old one; what is left goes at the next start */
        return 0;
    }
    old = xasprintf("%s.old", to); /* until the new one is in place: step_clean puts it back */
    folder_remove(old, NULL);
    rc = file_rename(to, old, err);
    if (rc == 0) {
        rc = file_rename(tmp, to, err);
        if (rc == 0)
            folder_remove(old, NULL);
        else
            rename(old, to);
    }
    free(old);
    return rc;
}

static void prune(const struct ckpt_writer *w)
{
    struct step_folder *list;
    int n = step_list(w->dir, &list);

    for (int i = 0; w->keep > 0 && i < n - w->keep; i++) {
        char *path = xasprintf("%s/step-%lld", w->dir, (long long)list[i].step);

        if (list[i].step != w->step)
            folder_remove(path, NULL); /* one more try at the next save */
        free(path);
    }
    free(list);
}

/* moved: the folder has its name, so the checkpoint is whole whatever comes after. */
static int commit(struct ckpt_writer *w, const struct ckpt_file *files, int *moved, struct err *err)
{
    char *tmp = tmp_folder(w), *to = step_folder(w), *manifest = xasprintf("%s/manifest.json", tmp);
    char *latest = xasprintf("%s/latest", w->dir), *text = xasprintf("step-%lld\n", (long long)w->step);
    int rc;

    manifest_print_files(files, w->boot->world, &w->head);
    rc = file_write(manifest, w->head.data, w->head.len, err);
    if (rc == 0)
        rc = folder_sync(tmp, err);
    if (rc == 0)
        rc = move_folder(tmp, to, err);
    *moved = rc == 0;
    if (rc == 0)
        rc = folder_sync(w->dir, err);
    if (rc == 0)
        rc = file_replace(latest, text, strlen(text), err);
    if (rc == 0)
        prune(w);
    free(tmp);
    free(to);
    free(manifest);
    free(latest);
    free(text);
    return rc;
}

/* Puts around a failure what the user wants to know: which save, what is still there, what to do. */
static void explain(const struct ckpt_writer *w, struct err *err)
{
    struct step_folder *list;
    int n = step_list(w->dir, &list);
    struct err cause = *err;
    char left[64] = "there is no older one";

    if (n)
        snprintf(left, sizeof left, "the older one of step %lld is whole", (long long)list[n - 1].step);
    err_set(err, cause.code, "the checkpoint of step %lld was not written: %.800s; %s%s",
            (long long)w->step, cause.text, left,
            strstr(cause.text, strerror(ENOSPC)) ? "; make room there" : "");
    free(list);
}

/* Rank 0 behind its own file: commits or clears away, and tells everyone. */
static int finish(struct ckpt_writer *w, int rc, struct err *err)
{
    struct ckpt_file *files = xcalloc((size_t)w->boot->world, sizeof *files);
    char *key = key_of(w, "done"), *tmp = tmp_folder(w);
    struct err tell_err = ERR_INIT;
    int moved = 0;

    if (rc == 0)
        rc = gather(w, files, err);
    if (rc == 0)
        rc = commit(w, files, &moved, err);
    if (rc < 0 && moved) {
        err_prefix(err, "the checkpoint of step %lld is whole, but could not be made the latest",
                   (long long)w->step);
    } else if (rc < 0) {
        folder_remove(tmp, NULL);
        explain(w, err);
    }
    if (tell(w->boot, key, rc, err, NULL, &tell_err) < 0 && rc == 0)
        rc = 0; /* committed; who cannot be told is gone */
    for (int r = 0; r < w->boot->world; r++)
        free(files[r].name);
    free(files);
    free(key);
    free(tmp);
    return rc;
}

static int save(struct ckpt_writer *w, struct err *err)
{
    int rc = make_folder(w, err);
    char *key;

    if (rc == 0) {
        struct err own = ERR_INIT;

        write_own(w, &own); /* rank 0 hears of it as of any other */
    }
    if (w->boot->rank == 0)
        return finish(w, rc, err);
    key = key_of(w, "done");
    rc = hear(w->boot, key, WAIT_MS, NULL, err);
    free(key);
    return rc;
}

static void writer_free(struct ckpt_writer *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    image_clear(&w->image);
    buf_clear(&w->head);
    free(w->dir);
    free(w);
}

static void *writer_main(void *arg)
{
    struct ckpt_writer *w = arg;
    int left;

    pthread_mutex_lock(&w->lock);
    while (1) {
        struct err err = ERR_INIT;
        int rc;

        while (!w->busy && !w->quit)
            pthread_cond_wait(&w->changed, &w->lock);
        if (!w->busy)
            break;
        pthread_mutex_unlock(&w->lock);
        rc = save(w, &err);
        pthread_mutex_lock(&w->lock);
        w->busy = 0;
        w->result = rc < 0 ? -1 : 1;
        w->result_step = w->step;
        w->result_err = err;
        if (w->left)
            break;
        if (rc == 0 && w->boot->page &&
            __atomic_load_n(&w->boot->page->committed, __ATOMIC_RELAXED) < (uint64_t)w->step)
            __atomic_store_n(&w->boot->page->committed, (uint64_t)w->step, __ATOMIC_RELAXED);
        pthread_cond_broadcast(&w->changed);
    }
    left = w->left;
    pthread_mutex_unlock(&w->lock);
    if (left)
        writer_free(w);
    return NULL;
}

/* ---- create, save, poll ---- */

/* Every rank must see the folder of rank 0: it writes a number there that all have to find. */
static int see_folder(struct ckpt_writer *w, struct err *err)
{
    struct boot *b = w->boot;
    char *path = xasprintf("%s/.seen", w->dir), *key = xasprintf("ckpt/seen/%s", w->dir);
    struct err failed = ERR_INIT;
    struct buf nonce = BUF_INIT, found = BUF_INIT;
    int rc = 0;

    if (b->rank == 0) {
        buf_addf(&nonce, "%lld-%d-%u", (long long)clock_ns(), (int)getpid(), b->epoch);
        rc = folder_make(w->dir, &failed);
        if (rc == 0)
            step_clean(w->dir);
        if (rc == 0)
            rc = file_write(path, nonce.data, nonce.len, &failed);
        if (tell(b, key, rc, &failed, &nonce, err) < 0)
            rc = -1;
        else if (rc < 0)
            *err = failed;
    } else {
        int64_t until = clock_ms() + 5000; /* network file systems show a new file late */

        rc = hear(b, key, SEEN_MS, &nonce, err);
        while (rc == 0) {
            buf_reset(&found);
            if (file_read(path, 256, &found, NULL) == 0 && strcmp(buf_str(&found), buf_str(&nonce)) == 0)
                break;
            if (clock_ms() > until)
                rc = err_set(
                    err, ERR_INPUT,
                    "rank %d does not see the folder %s that rank 0 writes to; give a run.dir "
                    "that all nodes share",
                    b->rank, w->dir);
            nanosleep(&(struct timespec){0, 50000000}, NULL);
        }
    }
    buf_clear(&nonce);
    buf_clear(&found);
    free(key);
    free(path);
    return rc;
}

/* All ranks hear of the first failure among them. */
static int agree(struct ckpt_writer *w, int rc, struct err *err)
{
    struct boot *b = w->boot;
    char *key = xasprintf("ckpt/seen/%s/%d", w->dir, b->rank), *all = xasprintf("ckpt/seen/%s/all", w->dir);
    char *path = xasprintf("%s/.seen", w->dir);
    struct err first = *err, put_err = ERR_INIT;

    if (b->rank > 0) {
        tell(b, key, rc, err, NULL, &put_err);
        rc = hear(b, all, SEEN_MS, NULL, err);
    } else {
        for (int r = 1; r < b->world; r++) {
            struct err one = ERR_INIT;
            char *theirs = xasprintf("ckpt/seen/%s/%d", w->dir, r);

            if (rc == 0 && hear(b, theirs, SEEN_MS, NULL, &one) < 0) {
                first = one;
                rc = -1;
            }
            free(theirs);
        }
        tell(b, all, rc, &first, NULL, &put_err);
        unlink(path);
        *err = first;
    }
    free(key);
    free(all);
    free(path);
    return rc;
}

static int start_thread(struct ckpt_writer *w, struct err *err)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all); /* signals are for the thread that computes */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&w->thread, NULL, writer_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        errno = rc;
        return err_set(err, ERR_RANK, "the thread that writes checkpoints cannot be started: %m");
    }
    w->have_thread = 1;
    return 0;
}

int ckpt_writer_create(struct ckpt_writer **out, const char *dir, struct boot *boot, int64_t keep,
                       struct err *err)
{
    struct ckpt_writer *w = xcalloc(1, sizeof *w);
    pthread_condattr_t clock;
    int rc;

    w->dir = xstrdup(dir);
    w->boot = boot;
    w->keep = keep;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &clock);
    pthread_condattr_destroy(&clock);
    rc = see_folder(w, err);
    rc = agree(w, rc, err);
    if (rc == 0)
        rc = start_thread(w, err);
    if (rc < 0) {
        ckpt_writer_destroy(w);
        w = NULL;
    }
    *out = w;
    return rc;
}

/* With the lock held, until no save is under way: a second at a time, for a write may hang in the disk for as long
 * as it likes while the job is ended. */
static int wait_idle(struct ckpt_writer *w, struct err *err)
{
    while (w->busy) {
        struct timespec t;

        if (w->boot->page && __atomic_load_n(&w->boot->page->abort, __ATOMIC_ACQUIRE))
            return err_set(err, ERR_RANK_ABORT,
                           "the wait for the checkpoint of step %lld was ended by the abort flag",
                           (long long)w->step);
        if (clock_ms() >= w->until)
            return err_set(err, ERR_JOB_IO,
                           "the checkpoint of step %lld is not written after %d minutes: the disk under %s "
                           "does not answer", (long long)w->step, WAIT_MS / 60000, w->dir);
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_sec++;
        pthread_cond_timedwait(&w->changed, &w->lock, &t);
    }
    return 0;
}

int ckpt_save(struct ckpt_writer *w, const struct ckpt_meta *meta, const struct ckpt_entry *entries,
              int n, const struct ckpt_entry *tensors, int ntensors, struct err *err)
{
    int rc;

    for (int i = 0; i < n; i++) {
        uint64_t total;

        if (shape_total(entries[i].shape, entries[i].ndim, &total) < 0 ||
            entries[i].first > total || entries[i].count > total - entries[i].first)
            return err_set(err, ERR_JOB_INTERNAL,
                           "%s|%s: a range to be saved lies outside its tensor", entries[i].name,
                           entries[i].kind);
    }
    pthread_mutex_lock(&w->lock);
    rc = wait_idle(w, err);
    pthread_mutex_unlock(&w->lock);
    if (rc < 0)
        return -1;
    w->step = meta->step;
    w->seq++;
    image_build(&w->image, meta, w->boot->rank, entries, n, tensors, ntensors);
    buf_reset(&w->head);
    manifest_print_head(meta, tensors, ntensors, &w->head);
    pthread_mutex_lock(&w->lock);
    w->busy = 1;
    w->until = clock_ms() + WAIT_MS;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return 0;
}

uint64_t ckpt_writer_bytes(const struct ckpt_writer *w)
{
    return w->image.cap;
}

int ckpt_poll(struct ckpt_writer *w, int block, int64_t *step, struct err *err)
{
    int rc;

    pthread_mutex_lock(&w->lock);
    *step = w->step;
    rc = block ? wait_idle(w, err) : 0;
    if (rc == 0 && w->result) {
        rc = w->result;
        *step = w->result_step;
        if (rc < 0 && err)
            *err = w->result_err;
        w->result = 0;
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void ckpt_writer_destroy(struct ckpt_writer *w)
{
    int hangs;

    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    hangs = wait_idle(w, NULL) < 0;
    w->quit = 1;
    w->left = hangs;
    pthread_cond_broadcast(&w->changed);
    if (hangs)
        pthread_detach(w->thread);
    pthread_mutex_unlock(&w->lock);
    if (hangs)
        return;
    if (w->have_thread)
        pthread_join(w->thread, NULL);
    writer_free(w);
}
