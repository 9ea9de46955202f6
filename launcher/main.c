/* ds-launch: reads the command line and hands over to a subcommand or to a run. */
#include "engine/base/log.h"
#include "launcher/everywhere.h"
#include "launcher/front.h"
#include "launcher/keeper.h"
#include "launcher/pidfile.h"
#include "launcher/subcommands.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Subcommands that are ds-rank's: taken before our own options are looked at, their flags are not ours. */
static int is_ranks(const char *word)
{
    static const char *const words[] = {"data", "ckpt", "sample", "lr", NULL};
    int i;

    for (i = 0; words[i]; i++)
        if (!strcmp(words[i], word))
            return 1;
    return 0;
}

static void print_warnings(struct buf *warn)
{
    char *line, *rest = warn->data;

    while (rest && (line = strsep(&rest, "\n")))
        if (*line)
            log_warn("%s", line);
    buf_clear(warn);
}

struct run {
    const struct options *o;
    struct task task;
    struct hosts hosts;
    const struct spawner_ops *ops;
};

static int work(void *arg, int signals)
{
    struct run *r = arg;
    struct options o = *r->o;
    int status;

    o.connect_timeout_ms = r->task.connect_timeout_ms; /* of the job file too: spawners see options only */
    o.ping_limit_ms = r->task.ping_limit_ms;
    do
        status = front_run(&o, &r->task, &r->hosts, r->ops, signals);
    while (status == FRONT_AGAIN);
    return status;
}

static int run(const struct options *o)
{
    struct run r = {.o = o};
    struct err err = ERR_INIT;
    char *pid_file = NULL;
    int status;

    if (!task_make(&r.task, o, &err) && !task_hosts(&r.task, o, &r.hosts, &err) &&
        (r.ops = task_spawner(&r.task, &r.hosts, &err)) &&
        (!o->save_pid || !pidfile_make(&pid_file, &err))) {
        status = keeper_run(work, &r);
    } else {
        log_error("%s", err.text);
        status = err_exit_code(&err);
    }
    pidfile_remove(pid_file);
    hosts_clear(&r.hosts);
    task_clear(&r.task);
    return status;
}

static int is_sub(const struct options *o, const char *name)
{
    return o->argc && !strcmp(o->argv[0], name);
}

static int dispatch(struct options *o)
{
    char *settings[] = {NULL, "info", "--settings", NULL};

    if (is_sub(o, "hosts"))
        return cmd_hosts(o);
    if (is_sub(o, "plan"))
        return cmd_plan(o);
    if (is_sub(o, "info") && o->argc > 1) {
        log_error("ds-launch info: '%s' is one word too many", o->argv[1]);
        return 2;
    }
    if (is_sub(o, "info"))
        return o->settings ? cmd_rank(settings) : cmd_info(o);
    if (is_sub(o, "exec"))
        return cmd_exec(o);
    if (is_sub(o, "ps"))
        return cmd_ps(o);
    if (is_sub(o, "kill"))
        return cmd_kill(o);
    if (!o->argc && !o->deepspeed_config) {
        log_error("nothing to run: give a job file or a program; see ds-launch --help");
        return 2;
    }
    return run(o);
}

#define FILES_LEAST 64 /* the loop, the keeper, and a few of one host */
#define FILES_MOST (1u << 20) /* as the agent's; some systems allow a billion, and who starts from here inherits it */

/* 0, 1 and 2 are open, else the first sockets would lie there and get our output; and we may have as many more as the
 * system allows, within reason, for every host takes some. */
static int descriptors(struct err *err)
{
    struct rlimit files;
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
    if (getrlimit(RLIMIT_NOFILE, &files))
        return 0;
    files.rlim_cur = files.rlim_max < FILES_MOST ? files.rlim_max : FILES_MOST;
    setrlimit(RLIMIT_NOFILE, &files);
    if (fd >= 0 && files.rlim_max >= FILES_LEAST)
        return 0;
    return err_set(err, ERR_INPUT, "no more than %llu files may be open here, and ds-launch needs %d and more: raise "
                   "the limit (ulimit -n)", (unsigned long long)files.rlim_max, FILES_LEAST);
}

int main(int argc, char **argv)
{
    struct options o;
    struct buf out = BUF_INIT, warn = BUF_INIT;
    struct err err = ERR_INIT;
    int rc, status;

    log_open("ds-launch");
    if (descriptors(&err)) {
        log_error("%s", err.text);
        return err_exit_code(&err);
    }
    if (argc > 1 && is_ranks(argv[1]))
        return cmd_rank(argv);
    rc = options_parse(&o, argc, argv, &out, &warn, &err);
    if (!rc && o.argc && is_ranks(o.argv[0]))
        rc = err_set(&err, ERR_INPUT,
                     "ds-launch %s takes no options of ds-launch: put %s first; a program of this name "
                     "is started by its path",
                     o.argv[0], o.argv[0]);
    if (!rc && o.argc && (options_is_command(o.argv[0]) || options_is_job(o.argv[0])))
        rc = options_parse_more(&o, &out, &warn, &err);
    else if (!rc)
        options_warn_behind(&o, &warn);
    if (!rc)
        rc = options_check_use(&o, &err);
    if (!rc) {
        if (o.log_level)
            log_level_parse(o.log_level, &log_level);
        if (o.quiet)
            log_level = LOG_ERROR;
        print_warnings(&warn);
    }
    if (rc > 0)
        fputs(buf_str(&out), stdout);
    if (rc < 0)
        log_error("%s", err.text);
    status = rc > 0 ? fflush(stdout) != 0 : rc < 0 ? err_exit_code(&err) : dispatch(&o);
    buf_clear(&out);
    buf_clear(&warn);
    options_clear(&o);
    return status;
}
