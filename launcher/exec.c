/* `ds-launch exec`: the command line's part of it. */
#include "launcher/everywhere.h"

#include "engine/base/log.h"
#include "launcher/keeper.h"
#include "launcher/task.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One word with blanks or what a shell gives a meaning is a line for sh; several words are the program and its
 * arguments, byte for byte. */
static void make_command(struct command *c, const struct options *o)
{
    static char sh[] = "sh", minus_c[] = "-c";
    int line = o->argc == 2 && strpbrk(o->argv[1], " \t\n|&;<>()$`\\\"'*?[#~{");
    int i;

    c->argv = xcalloc((size_t)o->argc + 2, sizeof *c->argv);
    if (line) {
        c->argv[c->argc++] = sh;
        c->argv[c->argc++] = minus_c;
    }
    for (i = 1; i < o->argc; i++)
        c->argv[c->argc++] = o->argv[i];
}

static int make_environment(struct command *c, const struct options *o, struct err *err)
{
    char **words = xcalloc((size_t)o->nexports + 1, sizeof *words), none[] = "NONE";
    char *cwd = getcwd(NULL, 0);
    const char *unset = envlist_unset(environ, o->export, o->nexports);
    int rc;

    if (unset)
        log_warn("--export %s: it is not set here, so the hosts do not get it", unset);
    words[0] = none;
    if (o->nexports)
        memcpy(words + 1, o->export, (size_t)o->nexports * sizeof *words);
    rc = envlist_build(&c->env, environ, getenv("HOME"), cwd ? cwd : "/", words, o->nexports + 1, 0, err);
    free(words);
    free(cwd);
    return rc;
}

struct call {
    const struct options *o;
    struct command command;
    struct hosts hosts;
    const struct spawner_ops *ops;
};

static int work(void *arg, int signals)
{
    struct call *c = arg;

    return everywhere_run(c->o, &c->command, &c->hosts, c->ops, signals);
}

int cmd_exec(const struct options *o)
{
    struct task t = {.job = {.num_nodes = 0}, .launcher = o->launcher};
    struct call c = {.o = o};
    struct err err = ERR_INIT;
    int status;

    if (o->argc < 2)
        err_set(&err, ERR_INPUT, "ds-launch exec: give a command, for example: ds-launch exec -H hosts -- uptime");
    else if (!make_environment(&c.command, o, &err) && !task_hosts(&t, o, &c.hosts, &err))
        c.ops = task_spawner(&t, &c.hosts, &err);
    if (c.ops) {
        make_command(&c.command, o);
        status = keeper_run(work, &c);
    } else {
        log_error("%s", err.text);
        status = err_exit_code(&err);
    }
    hosts_clear(&c.hosts);
    envlist_clear(&c.command.env);
    free(c.command.argv);
    return status;
}
