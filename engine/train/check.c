/* ds-rank check: the job read, the data opened, the start table printed; nothing is started. */
#include "engine/train/train.h"

#include "engine/base/buf.h"
#include "engine/base/log.h"
#include "engine/base/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One rank must fit into this machine; what its neighbours take is not known here. */
static int check_memory(const struct setup *s, struct device *dev, size_t activations, struct err *err)
{
    struct mem_info mem = {0};
    uint64_t bytes[MEM_CLASSES];
    double need = (double)activations, gb = 1e-9;

    zero_bytes(s->table, s->order, &s->job, s->dtype, bytes);
    for (int i = 0; i < MEM_CLASSES; i++)
        need += (double)bytes[i];
    dev->ops->info(dev, &mem);
    if (!mem.total || need <= (double)mem.total)
        return 0;
    return err_set(err, ERR_INPUT,
                   "a rank needs %.1f GB of memory (%.1f of them activations) and this machine has %.1f GB; "
                   "use a smaller model, a smaller train_micro_batch_size_per_gpu or data.seq_len, or "
                   "zero_optimization.stage = 3 on more ranks",
                   need * gb, (double)activations * gb, (double)mem.total * gb);
}

static int print_table(struct setup *s, struct err *err)
{
    float unused = 0; /* the executor only measures, but for a backward too */
    struct exec_memory none = {.dtype = s->dtype, .grad = &unused};
    struct device *dev = NULL;
    struct exec *exec = NULL;
    struct buf out = BUF_INIT;
    size_t bytes = 0;
    int rc = device_cpu.create(&dev, 0, err);

    if (!rc)
        rc = exec_create(&exec, s->model, s->order, s->table, &none, &kernels_cpu, dev, err);
    if (!rc)
        rc = exec_bytes(exec, s->job.micro_batch_size, s->job.seq_len, &bytes, err);
    if (!rc)
        rc = check_memory(s, dev, bytes, err);
    if (!rc) {
        setup_table(s, bytes, 0, 0, 0, train_threads(&s->job, 1), &out);
        rc = exec_say_again(exec, s->job.micro_batch_size, s->job.seq_len, &out, err);
        fputs(buf_str(&out), stdout);
    }
    buf_clear(&out);
    exec_destroy(exec);
    if (dev)
        dev->ops->destroy(dev);
    return rc;
}

static int check_ckpt(const struct setup *s, const char *path, int resume, struct err *err)
{
    struct ckpt *c = NULL;
    int rc = ckpt_open(&c, path, err);

    if (!rc && resume)
        rc = train_same_run(s, c, err);
    ckpt_close(c);
    return rc;
}

/* With resume = auto, init_from is where a run without checkpoints begins. */
static int check_start(const struct setup *s, struct err *err)
{
    const struct job *job = &s->job;
    char *path;
    int rc = 0;

    if (job->resume && strcmp(job->resume, "auto") && job->init_from)
        return err_set(err, ERR_INPUT, "run.resume = %s and run.init_from = %s: a run begins at one of them; "
                       "take one out, or write resume = auto", job->resume, job->init_from);
    path = train_origin(job);
    if (path)
        rc = check_ckpt(s, path, 1, err);
    else if (job->init_from)
        rc = check_ckpt(s, job->init_from, 0, err);
    free(path);
    return rc;
}

static int check(const char *path, int world, struct err *err)
{
    struct settings_rows rows = {0};
    struct setup *s = NULL;
    struct buf warn = BUF_INIT;
    int rc = job_read(&rows, path, err);

    if (!rc)
        rc = setup_create(&s, &rows, world, 1, &warn, err);
    if (!rc)
        rc = check_start(s, err);
    if (!rc)
        rc = print_table(s, err);
    if (warn.len)
        fputs(warn.data, stderr);
    buf_clear(&warn);
    setup_destroy(s);
    settings_rows_clear(&rows);
    return rc;
}

static const char usage[] = "usage: ds-rank check FILE [--world N]";

int train_check_main(int argc, char **argv)
{
    struct err err = ERR_INIT;
    int64_t world = 1;

    if (parse_help(argc, argv, usage))
        return 0;
    if ((argc != 2 && argc != 4) ||
        (argc == 4 && (strcmp(argv[2], "--world") || parse_i64(argv[3], 1, 1 << 20, &world) < 0))) {
        log_error("%s", usage);
        return 2;
    }
    if (check(argv[1], (int)world, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return err_exit_code(&err);
    }
    return 0;
}
