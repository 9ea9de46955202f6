/* Life of a run in one rank: see train.h. */
#include "engine/train/train.h"

#include "engine/base/buf.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"

#include <stdlib.h>
#include <string.h>

static int open_writer(struct train *t, struct err *err)
{
    const struct job *job = &t->setup->job;
    char *dir;
    int rc;

    if (!job->run_dir)
        return 0;
    dir = xasprintf("%s/ckpt", job->run_dir);
    rc = ckpt_writer_create(&t->writer, dir, t->boot, job->keep, err);
    free(dir);
    return rc;
}

/* Do blocks of so many ranks lie inside a node each? */
static int fits_nodes(const struct boot *b, int64_t near)
{
    int fits = b->world % near == 0;

    for (int r = 0; r < b->world && fits; r++)
        fits = b->node_of[r] == b->node_of[r / near * near];
    return fits;
}

/* The second copy is there to be gathered without the network. */
static int check_near(const struct boot *b, int64_t near, struct err *err)
{
    struct buf sizes = BUF_INIT;

    if (b->world == 1 || fits_nodes(b, near))
        return 0;
    for (int64_t n = 2; n <= b->world; n++)
        if (fits_nodes(b, n))
            buf_addf(&sizes, "%s%lld", sizes.len ? ", " : "", (long long)n);
    err_set(err, ERR_INPUT,
            "zero_optimization.zero_hpz_partition_size = %lld: a block of %lld ranks lies on two nodes; %s%s",
            (long long)near, (long long)near, sizes.len ? "sizes that fit these nodes: " : "no size fits these "
            "nodes, take it out", buf_str(&sizes));
    buf_clear(&sizes);
    return -1;
}

static int make_states(struct train *t, struct err *err)
{
    struct setup *s = t->setup;
    struct exec_memory mem;

    if (check_near(t->boot, s->job.hpz, err) < 0)
        return -1;
    if (s->job.overlap_comm == OVERLAP_AUTO)
        s->job.overlap_comm = t->boot->nodes > 1 ? OVERLAP_ON : OVERLAP_OFF;
    if (comm_create(&t->comm, t->boot, t->dev, s->job.comm_timeout_ms, err) < 0 ||
        zero_create(&t->zero, s->table, s->order, t->k, t->dev, t->comm, &s->job, s->dtype, err) < 0)
        return -1;
    mem = (struct exec_memory){t->zero->weight, t->zero->grad, s->dtype,
                               t->zero->stage >= 2 ? t->zero : NULL};
    if (exec_create(&t->exec, s->model, s->order, s->table, &mem, t->k, t->dev, err) < 0)
        return -1;
    train_batch_init(&t->batch, s->job.micro_batch_size, s->job.seq_len);
    return exec_prepare(t->exec, t->batch.B, t->batch.T, err);
}

/* A path may name another folder on another node: ranks that began with different checkpoints would train
 * on without a word. */
static int agree_on_start(struct train *t, struct err *err)
{
    double step = (double)t->from_step, high = (double)(t->from_seal >> 32),
           low = (double)(t->from_seal & UINT32_MAX); /* a double holds 53 bits */
    double most[6] = {step, high, low, -step, -high, -low};
    struct coll all = {.op = COLL_ALL_REDUCE, .send = most, .recv = most, .count = 6,
                       .dtype = DS_F64, .reduce = COLL_MAX, .class = CLASS_CONTROL};

    if (t->comm->size > 1 && comm_run(t->comm, &all, err) < 0)
        return -1;
    if (most[0] == -most[3] && most[1] == -most[4] && most[2] == -most[5])
        return 0;
    return err_set(err, ERR_INPUT,
                   "the ranks do not see the same checkpoint: the newest is of step %.0f, but there are "
                   "ranks with %s; give a folder that all nodes share",
                   most[0], -most[3] < 0           ? "none"
                            : -most[3] < most[0] ? "an older one"
                                                 : "another one of that step");
}

static int load_state(struct train *t, struct err *err)
{
    const struct job *job = &t->setup->job;
    char *path = train_origin(job);
    int rc;

    if (path) {
        rc = train_resume(t, path, err);
        free(path);
        return rc;
    }
    zero_init(t->zero, (uint64_t)job->seed);
    return job->init_from ? train_init_from(t, job->init_from, err) : zero_refresh(t->zero, err);
}

static int first_state(struct train *t, struct err *err)
{
    return load_state(t, err) < 0 ? -1 : agree_on_start(t, err);
}

/* DS_DEVICE names another device than the first that is usable: cpu-async makes every stream a thread with
 * random delays, for tests. */
static const struct device_ops *pick_device(struct err *err)
{
    const char *name = getenv("DS_DEVICE");

    for (int i = 0; name && devices[i]; i++)
        if (!strcmp(devices[i]->name, name))
            return devices[i];
    if (name)
        err_set(err, ERR_INPUT, "DS_DEVICE = %s: there is no such device; see ds-launch info", name);
    return name ? NULL : &device_cpu;
}

int train_create(struct train **out, struct setup *s, struct boot *boot, struct link *link,
                 struct err *err)
{
    struct train *t = xcalloc(1, sizeof *t);
    const struct device_ops *ops;

    t->setup = s;
    t->boot = boot;
    t->link = link;
    t->k = &kernels_cpu;
    t->valid_loss = NAN;
    t->save_err = (struct err)ERR_INIT;
    t->saved_step = t->from_step = -1;
    t->threads = train_threads(&s->job, boot->local_world);
    t->scalars = (struct ds_scalars){.seed = (uint64_t)s->job.seed};
    t->scale = loss_scale_of(&s->job);
    ops = pick_device(err);
    if (!ops || ops->create(&t->dev, 0, err) < 0 || make_states(t, err) < 0 ||
        first_state(t, err) < 0 || open_writer(t, err) < 0) {
        train_destroy(t);
        return -1;
    }
    *out = t;
    return 0;
}

void train_destroy(struct train *t)
{
    if (!t)
        return;
    ckpt_writer_destroy(t->writer);
    train_batch_clear(&t->batch);
    exec_destroy(t->exec);
    zero_destroy(t->zero);
    if (t->comm)
        t->comm->ops->destroy(t->comm);
    if (t->dev)
        t->dev->ops->destroy(t->dev);
    free(t);
}

/* A failed save costs the checkpoint, not the run: the next one may succeed. */
static void save_failed(struct train *t, const struct err *err)
{
    if (err->code == ERR_RANK_ABORT) /* the run ends: the next wait for a peer says so */
        return;
    t->save_err = *err;
    train_report_text(t, "%s", err->text);
}

static void look_at_saves(struct train *t, int block)
{
    struct err err = ERR_INIT;
    int64_t step = 0;
    int rc;

    while (t->writer && (rc = ckpt_poll(t->writer, block, &step, &err)) != 0) {
        if (rc < 0) {
            save_failed(t, &err);
        } else {
            train_report_snapshot(t, step);
            t->save_err = (struct err)ERR_INIT;
        }
        block = 0;
    }
}

static void count_image(struct train *t)
{
    uint64_t bytes = t->writer ? ckpt_writer_bytes(t->writer) : 0;

    device_count(t->dev, MEM_SNAPSHOT, (int64_t)(bytes - t->image_bytes));
    t->image_bytes = bytes;
}

static void save(struct train *t)
{
    struct err err = ERR_INIT;

    train_phase(t, PHASE_SAVE);
    look_at_saves(t, t->writer != NULL && t->saved_step >= 0);
    if (train_save(t, &err) < 0) {
        err_prefix(&err, "checkpoint of step %lld not written", (long long)t->step);
        save_failed(t, &err);
    }
    count_image(t);
    train_phase(t, PHASE_START);
}

/* The last save. Where it fails the run has not left what it was started for, and every rank knows. */
static int save_last(struct train *t, struct err *err)
{
    if (t->setup->job.save_every >= 0)
        save(t);
    train_phase(t, PHASE_SAVE);
    look_at_saves(t, 1);
    train_phase(t, PHASE_START);
    if (t->boot->fence && t->boot->fence(t->boot, "end", clock_ms() + 600000, err) < 0)
        return -1;
    if (train_report_breakdown(t, err) < 0)
        return -1;
    if (t->save_err.code == ERR_OK || t->comm->rank != 0)
        return 0;
    return err_set(err, ERR_JOB_IO,
                   "the run ended without its last checkpoint; what came before can be resumed from there");
}

static int evaluate(struct train *t, struct err *err)
{
    if (train_eval(t, &t->valid_loss, err) < 0)
        return -1;
    train_report_eval(t);
    return 0;
}

static int is_over(const struct train *t)
{
    return t->stop != STOP_NONE || (t->setup->total_steps && t->step >= t->setup->total_steps);
}

int train_run(struct train *t, struct err *err)
{
    const struct job *job = &t->setup->job;
    int64_t evaluated = -1;

    t->begin_ns = clock_ns();
    train_report_start(t);
    if (t->setup->total_steps && t->step >= t->setup->total_steps)
        train_report_text(t, "already at step %lld of %lld: nothing to do; raise run.steps to go on",
                          (long long)t->step, (long long)t->setup->total_steps);
    while (!is_over(t)) {
        if (train_step(t, err) < 0)
            return -1;
        train_report_step(t);
        if (job->eval_every > 0 && t->step % job->eval_every == 0) {
            if (evaluate(t, err) < 0)
                return -1;
            evaluated = t->step;
        }
        if (job->save_every > 0 && t->step % job->save_every == 0)
            save(t);
        look_at_saves(t, 0);
    }
    if (data_samples(t->setup->data, DATA_VALID) > 0 && evaluated != t->step &&
        t->stop == STOP_NONE && evaluate(t, err) < 0)
        return -1;
    return save_last(t, err);
}

/* ---- ds-rank ---- */

static int read_job(struct boot *boot, struct settings_rows *rows, struct err *err)
{
    void *text;
    size_t n;
    int rc;

    if (boot->get(boot, "job", &text, &n, clock_ms() + 60000, err) < 0)
        return -1;
    rc = settings_read(rows, "job", text, n, err);
    free(text);
    return rc;
}

static int run_rank(struct link *link, struct boot *boot, struct err *err)
{
    struct settings_rows rows = {0};
    struct setup *s = NULL;
    struct train *t = NULL;
    int rc = read_job(boot, &rows, err);

    if (!rc)
        rc = setup_create(&s, &rows, boot->world, 1, NULL, err);
    if (!rc)
        rc = train_create(&t, s, boot, link, err);
    if (!rc)
        rc = train_run(t, err);
    train_destroy(t);
    setup_destroy(s);
    settings_rows_clear(&rows);
    return rc;
}

int train_main(void)
{
    struct err err = ERR_INIT;
    struct link *link = NULL;
    struct boot *boot;

    if (link_open(&link, &boot, &err) < 0) {
        log_error("%s", err.text);
        return err_exit_code(&err);
    }
    if (run_rank(link, boot, &err) < 0) {
        if (err.code != ERR_RANK_PEER && err.code != ERR_RANK_ABORT)
            log_error("%s", err.text);
        link_fail(link, &err);
        link_close(link);
        return err_exit_code(&err);
    }
    link_close(link);
    return 0;
}
