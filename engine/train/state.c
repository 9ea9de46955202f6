/* Checkpoints of a run: which ranges of which tensors this rank saves, and what a resume puts back.
 *
 * Invariant: a rank saves slice `rank` of every flat, so that the ranks together hold every element once. */
#include "engine/train/train.h"

#include "engine/base/buf.h"
#include "engine/base/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kinds[ZERO_KINDS] = {"w", "m", "v"};

/* Moments of what is never updated, and those that the optimizer has not, are not stored. */
static int is_stored(const struct train *t, const struct param_tensor *x, int kind)
{
    return kind == ZERO_W ||
           (!(x->flags & (DS_FROZEN | DS_BUFFER)) && zero_has(t->zero, (enum zero_kind)kind));
}

static struct ckpt_entry whole(const struct param_tensor *x, int kind)
{
    return (struct ckpt_entry){.name = x->name, .kind = kinds[kind], .ndim = x->cols > 1 ? 2 : 1,
                               .shape = {x->rows, x->cols > 1 ? x->cols : 0}, .count = x->numel};
}

/* Every tensor of the model once, as the manifest lists them. */
static int all_tensors(struct train *t, struct ckpt_entry **out)
{
    const struct param_table *pt = t->setup->table;
    int n = 0;

    *out = xcalloc((size_t)pt->ntensors * ZERO_KINDS + 1, sizeof **out);
    for (int i = 0; i < pt->ntensors; i++)
        for (int k = 0; k < ZERO_KINDS && pt->tensor[i].alias < 0; k++)
            if (is_stored(t, &pt->tensor[i], k))
                (*out)[n++] = whole(&pt->tensor[i], k);
    return n;
}

/* The ranges of tensors in slices [first, first + nslices), with their place in the states. */
static int slices(struct train *t, int first, int nslices, int kinds_wanted, struct ckpt_entry **out)
{
    const struct param_table *pt = t->setup->table;
    int n = 0, cap = 0;

    *out = NULL;
    for (int f = 0; f < pt->nflats; f++)
        for (int r = first; r < first + nslices; r++) {
            struct param_seg *seg;
            int nsegs = param_segments(pt, f, r, &seg);

            for (int s = 0; s < nsegs; s++)
                for (int k = 0; k < kinds_wanted; k++) {
                    struct ckpt_entry e = whole(&pt->tensor[seg[s].tensor], k);

                    if (!is_stored(t, &pt->tensor[seg[s].tensor], k))
                        continue;
                    e.first = seg[s].lo;
                    e.count = seg[s].hi - seg[s].lo;
                    e.data = zero_slice(t->zero, (enum zero_kind)k, f, r) + seg[s].at;
                    ARRAY_GROW(*out, n, cap);
                    (*out)[n++] = e;
                }
            free(seg);
        }
    return n;
}

/* Where a run lies and what it began from is not part of its state: shards of equal state are equal files. */
static int is_place(const char *path)
{
    static const char *const place[] = {"run.dir", "run.name", "run.resume", "run.init_from"};

    for (size_t i = 0; i < sizeof place / sizeof *place; i++)
        if (!strcmp(path, place[i]))
            return 1;
    return !strncmp(path, "launch.", 7);
}

static char *state_config(const struct settings_rows *rows)
{
    struct settings_rows kept = {0};
    struct buf text = BUF_INIT;

    for (int i = 0; i < rows->n; i++)
        if (!is_place(rows->row[i].path))
            settings_rows_add(&kept, rows->row[i].path, rows->row[i].value, rows->row[i].where);
    settings_rows_print(&kept, &text);
    settings_rows_clear(&kept);
    return text.data ? buf_detach(&text) : xstrdup("");
}

static void describe(struct train *t, struct ckpt_meta *m)
{

    memset(m, 0, sizeof *m);
    m->step = t->step;
    m->update = t->update;
    m->samples = t->samples;
    m->applied = t->applied;
    m->loss_scale = t->scale.scale;
    m->good_steps = t->scale.good_steps;
    m->hysteresis = t->scale.hysteresis;
    m->seed = (uint64_t)t->setup->job.seed;
    m->data_hash = data_hash(t->setup->data);
    m->config_hash = setup_hash(t->setup);
    m->world = t->comm->size;
    m->threads = t->threads;
    snprintf(m->mesh, sizeof m->mesh, "data=%d", t->comm->size);
    snprintf(m->isa, sizeof m->isa, "%s", kernels_cpu_isa());
    snprintf(m->build, sizeof m->build, "%s", build_id());
    m->config = state_config(&t->setup->rows);
    m->loss = t->loss;
    m->valid_loss = t->valid_loss;
}

int train_save(struct train *t, struct err *err)
{
    struct ckpt_entry *own, *all;
    struct ckpt_meta meta;
    int n, nall, rc;

    if (!t->writer || t->saved_step == t->step)
        return 0;
    n = slices(t, t->comm->rank, 1, ZERO_KINDS, &own);
    nall = all_tensors(t, &all);
    describe(t, &meta);
    rc = ckpt_save(t->writer, &meta, own, n, all, nall, err);
    t->saved_step = t->step;
    ckpt_meta_clear(&meta);
    free(own);
    free(all);
    return rc;
}

static int read_states(struct train *t, struct ckpt *c, int kinds_wanted, struct err *err)
{
    struct ckpt_entry *held;
    int n = slices(t, t->zero->first, t->zero->nslices, kinds_wanted, &held);
    int rc = ckpt_read(c, held, n, err);

    free(held);
    return rc;
}

static int check_meta(struct train *t, const struct ckpt *c, struct err *err)
{
    const struct ckpt_meta *m = ckpt_meta(c);

    if (train_same_run(t->setup, c, err) < 0)
        return -1;
    if (m->world != t->comm->size || m->threads != t->threads ||
        strcmp(m->isa, kernels_cpu_isa()) || strcmp(m->build, build_id()))
        train_report_text(t,
                          "resuming on another machine shape (%d ranks x %d threads, %s there; %d x %d, "
                          "%s here): equal within rounding, not bit-identical",
                          m->world, m->threads, m->isa, t->comm->size, t->threads, kernels_cpu_isa());
    return 0;
}

/* Does this checkpoint lie in the run folder that this run writes to? */
static int is_own(const struct train *t, const char *path)
{
    char *dir = t->setup->job.run_dir ? realpath(t->setup->job.run_dir, NULL) : NULL;
    char *real = realpath(path, NULL);
    size_t n = dir ? strlen(dir) : 0;
    int own = dir && real && !strncmp(real, dir, n) && real[n] == '/';

    free(dir);
    free(real);
    return own;
}

static void take_meta(struct train *t, const struct ckpt *c)
{
    const struct ckpt_meta *m = ckpt_meta(c);

    t->step = t->from_step = m->step;
    t->from_seal = ckpt_seal(c);
    t->saved_step = is_own(t, ckpt_path(c)) ? m->step : -1;
    t->update = m->update;
    t->samples = m->samples;
    t->applied = m->applied;
    if (loss_scale_dynamic(&t->setup->job))
        t->scale = (struct loss_scale){m->loss_scale, m->good_steps, m->hysteresis};
    t->loss = m->loss;
    t->valid_loss = m->valid_loss;
    train_report_restore(t, m->step);
    train_report_text(t, "resumed from %s at step %lld%s%s%s", ckpt_path(c), (long long)m->step,
                      ckpt_passed_over(c) ? " (not the newest: " : "",
                      ckpt_passed_over(c) ? ckpt_passed_over(c) : "", ckpt_passed_over(c) ? ")" : "");
}

/* Does any rank say so? A rank reads its own part of a checkpoint, so one alone may find it damaged. */
static int any_rank(struct train *t, int *so, struct err *err)
{
    double most = *so;
    struct coll all = {.op = COLL_ALL_REDUCE, .send = &most, .recv = &most, .count = 1, .dtype = DS_F64,
                       .reduce = COLL_MAX, .class = CLASS_CONTROL};
    int rc = t->comm->size > 1 ? comm_run(t->comm, &all, err) : 0;

    *so = most > 0;
    return rc;
}

/* 1: it is damaged, as this rank (*why says how) or another has found; 0, -1. */
static int try_resume(struct train *t, struct ckpt *c, struct err *why, struct err *err)
{
    int rc = check_meta(t, c, err) < 0 ? -1 : read_states(t, c, ZERO_KINDS, why), damaged = rc < 0;

    if (rc < 0 && why->code != ERR_INPUT_DAMAGED)
        return why->code ? err_set(err, why->code, "%s", why->text) : -1;
    if (any_rank(t, &damaged, err) < 0)
        return -1;
    if (!damaged && !why->code)
        take_meta(t, c);
    return damaged;
}

int train_resume(struct train *t, const char *path, struct err *err)
{
    char *manifest = xasprintf("%s/manifest.json", path);
    int one_step = access(manifest, F_OK) == 0; /* no other is meant */
    struct ckpt *c = NULL;
    int rc = ckpt_open(&c, path, err);

    free(manifest);
    while (!rc) {
        struct err why = ERR_INIT;
        int64_t step = ckpt_meta(c)->step;

        rc = try_resume(t, c, &why, err);
        ckpt_close(c);
        if (rc <= 0)
            break;
        if (!why.code)
            err_set(&why, ERR_RANK_PEER, "another rank finds the checkpoint of step %lld damaged", (long long)step);
        rc = one_step || ckpt_open_before(&c, path, step, NULL) < 0 ? err_set(err, why.code, "%s", why.text) : 0;
        if (!rc)
            train_report_text(
                t,
                "the checkpoint of step %lld is damaged: its data differ from their hash; an older one is "
                "read",
                (long long)step);
    }
    return rc ? rc : zero_refresh(t->zero, err);
}

int train_init_from(struct train *t, const char *path, struct err *err)
{
    struct ckpt *c;
    int rc;

    if (ckpt_open(&c, path, err) < 0)
        return -1;
    rc = read_states(t, c, 1, err);
    if (!rc)
        rc = zero_refresh(t->zero, err);
    t->from_step = ckpt_meta(c)->step;
    t->from_seal = ckpt_seal(c);
    if (!rc)
        train_report_text(t, "weights from %s, step 0", ckpt_path(c));
    ckpt_close(c);
    return rc;
}
