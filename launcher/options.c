/* The command line of ds-launch. One table drives parsing, --help and the check of the manual page.
 *
 * Invariants: every row that stores has the offset of a field of its kind; a flag DeepSpeed has and we do
 * not support is a row too, so that it is refused with a reason and never taken for the program's name. */
#include "config.h"

#include "launcher/options.h"

#include "engine/base/log.h"
#include "engine/base/parse.h"
#include "launcher/output.h"
#include "launcher/options_table.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct option_row rows[] = {
    HEAD("Where to run"),
    {"hostfile", 'H', OPT_STR, AT(hostfile), 0, 0, "FILE", NULL,
     "hosts and their slots (ds-hostfile(5)); default: /job/hostfile if there, else this machine"},
    {"hosts", 0, OPT_STR, AT(hosts), 0, 0, "SPEC", NULL,
     "hosts without a file: w[1-4]:2,m1 or local, local:NODESxSLOTS, sim:NODESxSLOTS"},
    {"include", 'i', OPT_STR, AT(include), 0, 0, "FILTER", NULL,
     "keep only these: HOST[:SLOT,SLOT...][@HOST...], ranges allowed"},
    {"exclude", 'e', OPT_STR, AT(exclude), 0, 0, "FILTER", NULL, "drop these, same form"},
    {"num-nodes", 0, OPT_INT, AT(num_nodes), 1, 65536, "N", NULL, "the first N hosts"},
    {"num-gpus", 0, OPT_INT, AT(ranks_per_node), 1, 65536, "N", NULL, "N ranks on every host (the first N slots)"},
    {"num-accelerators", 0, OPT_INT, AT(ranks_per_node), 1, 65536, "N", NULL, "the same"},
    HEAD("How to get there"),
    {"launcher", 0, OPT_WORD, AT(launcher), 0, 0, "NAME", "local|exec|openssh|ssh",
     "local, exec, openssh or ssh; default: ssh, or local when every host is this machine"},
    {"launcher-args", 0, OPT_STR, AT(launcher_args), 0, 0, "TEMPLATE", NULL,
     "exec: a command that runs the words behind it on a host, as 'kubectl exec -i %h --'; %h its name, %n its number"},
    {"ssh-port", 0, OPT_INT, AT(ssh_port), 1, 65535, "PORT", NULL, "port of sshd on every host"},
    {"ssh-config", 0, OPT_STR, AT(ssh_config), 0, 0, "FILE", NULL, "default: ~/.ssh/config"},
    {"identity", 0, OPT_STR, AT(identity), 0, 0, "FILE", NULL, "one more private key to try"},
    {"connect-timeout", 0, OPT_MS, AT(connect_timeout_ms), 1, 0, "TIME", NULL,
     "for all agents to answer (default 30s)"},
    {"ping-limit", 0, OPT_MS, AT(ping_limit_ms), 1000, 0, "TIME", NULL,
     "silence after which a node is lost (default 10s)"},
    {"master-addr", 0, OPT_STR, AT(master_addr), 0, 0, "ADDRESS", NULL,
     "MASTER_ADDR; default: the first host's address in the network common to all"},
    {"master-port", 0, OPT_INT, AT(master_port), 1, 65535, "PORT", NULL,
     "MASTER_PORT; default: a free port of the first host, kept free for the job"},
    {"network-interface", 0, OPT_STR, AT(interface), 0, 0, "NAME|CIDR", NULL, "the network the ranks talk over"},
    HEAD("Where a rank sits on its host"),
    {"bind-to", 0, OPT_WORD, AT(bind_to), 0, 0, "WHAT", "none|core|numa|socket",
     "bind each rank to its share of the cores (core), to one NUMA node, to one socket, or not"},
    {"bind-cores-to-rank", 0, OPT_FLAG, AT(bind_cores), 0, 0, NULL, NULL, "the same as --bind-to core"},
    {"bind-core-list", 0, OPT_STR, AT(bind_core_list), 0, 0, "LIST", NULL,
     "only these processors of a host, for example 0,2-4,6"},
    {"topology", 0, OPT_STR, AT(topology), 0, 0, "WHAT", NULL,
     "plan: every host is like this hwloc XML file or description ('package:2 numa:2 core:8 pu:2')"},
    HEAD("What to run"),
    {"module", 'm', OPT_FLAG, AT(module), 0, 0, NULL, NULL, "run the program as python3 -u -m NAME"},
    {"no-python", 0, OPT_FLAG, AT(no_python), 0, 0, NULL, NULL, "run a .py file as it is, not under python3"},
    {"no-local-rank", 0, OPT_FLAG, AT(no_local_rank), 0, 0, NULL, NULL,
     "no --local_rank=N in front of the arguments of a Python program"},
    {"export", 0, OPT_LIST, AT(export), 0, 0, "NAME[=VALUE]", NULL,
     "carry this variable to the ranks too; 'PREFIX*' for many, ALL, NONE for none but these"},
    {"venv-script", 0, OPT_STR, AT(venv_script), 0, 0, "FILE", NULL,
     "sourced by a shell on every host before the ranks start; what it sets is theirs"},
    {"deepspeed-config", 0, OPT_STR, AT(deepspeed_config), 0, 0, "FILE", NULL,
     "a DeepSpeed JSON file: the job, or settings over those of the job file"},
    {"set", 0, OPT_SET, AT(set), 0, 0, "PATH=VALUE", NULL,
     "override a setting of the job file, for example run.steps=100"},
    {"resume", 0, OPT_ROW, AT(set), 0, 0, "CKPT", "run.resume", "go on from a checkpoint or run folder (run.resume)"},
    {"init-from", 0, OPT_ROW, AT(set), 0, 0, "CKPT", "run.init_from",
     "begin with the weights of a checkpoint (run.init_from)"},
    HEAD("What comes out"),
    {"run-dir", 0, OPT_STR, AT(run_dir), 0, 0, "DIR", NULL, "run folder of a job; default: ds-runs/NAME-TIME"},
    {"enable-each-rank-log", 0, OPT_STR, AT(log_dir), 0, 0, "DIR", NULL,
     "write the output of rank N to DIR/TIME_rankN.log too"},
    {"prefix", 0, OPT_STR, AT(prefix_style), 0, 0, "none|rank|host:rank|time", NULL,
     "in front of each line: none, rank ([3]), host:rank (w1:3:), time; with commas several"},
    {"stdin", 0, OPT_WORD, AT(stdin_to), 0, 0, "0|all|none", "0|all|none",
     "who reads what ds-launch reads (default 0)"},
    {"fold", 0, OPT_FLAG, AT(fold), 0, 0, NULL, NULL, "equal lines of several ranks once: [0-31] text"},
    {"color", 0, OPT_WORD, AT(color), 0, 0, "WHEN", "auto|always|never", "colour prefixes; auto: on a terminal"},
    {"log-level", 0, OPT_STR, AT(log_level), 0, 0, "debug|info|warning|error", NULL, "how much is told (default info)"},
    {"quiet", 'q', OPT_FLAG, AT(quiet), 0, 0, NULL, NULL, "the same as --log-level error"},
    {"list", 0, OPT_FLAG, AT(list), 0, 0, NULL, NULL, "hosts: print one compressed list"},
    {"json", 0, OPT_FLAG, AT(json), 0, 0, NULL, NULL, "hosts, plan, ps: print JSON"},
    {"live", 0, OPT_FLAG, AT(live), 0, 0, NULL, NULL, "exec: print lines as they come, each with its host in front"},
    {"settings", 0, OPT_FLAG, AT(settings), 0, 0, NULL, NULL, "info: print every setting of a job file"},
    HEAD("How it ends"),
    {"grace", 0, OPT_MS, AT(grace_ms), 0, 0, "TIME", NULL, "between TERM and KILL (default 30s)"},
    {"timeout", 0, OPT_MS, AT(timeout_ms), 1, 0, "TIME", NULL, "exec: end the command on a host after this time"},
    {"signal", 0, OPT_STR, AT(signal), 0, 0, "NAME", NULL, "kill: TERM (default), INT, HUP, KILL, USR1 or USR2"},
    {"save-pid", 0, OPT_FLAG, AT(save_pid), 0, 0, NULL, NULL,
     "while it runs, keep ds-launch's process number in /tmp/PID.deepspeed"},
    {"dry-run", 0, OPT_FLAG, AT(dry_run), 0, 0, NULL, NULL, "connect, check everything on every node, start no rank"},
    {"version", 'V', OPT_VERSION, 0, 0, 0, NULL, NULL, "print the version and end"},
    {"help", 'h', OPT_HELP, 0, 0, 0, NULL, NULL, "print this and end"},
    NOTHING("force-multi", NULL, "one host and many take the same path here"),
    NOTHING("no-ssh-check", NULL, "every host is tried by connecting to it, there is no separate check"),
    REFUSED("no-ssh", NULL,
            "type this once, not per node: agents are started by ds-launch; give --launcher exec with the command that "
            "reaches a host"),
    REFUSED("autotuning", "MODE",
            "trial runs and the choice among them are not part of a launch; start each trial with --set PATH=VALUE"),
    REFUSED("elastic-training", NULL,
            "say --nnodes MIN:MAX and --max-restarts N; ranks that start again resume from their own checkpoint"),
    REFUSED("min-elastic-nodes", "N",
            "say --nnodes MIN:MAX and --max-restarts N; ranks that start again resume from their own checkpoint"),
    REFUSED("max-elastic-nodes", "N",
            "say --nnodes MIN:MAX and --max-restarts N; ranks that start again resume from their own checkpoint"),
};

#define NOWN ((int)(sizeof rows / sizeof rows[0]))

const struct option_row *options_row(int i)
{
    return i < NOWN ? &rows[i] : i < NOWN + options_torch_n ? &options_torch_rows[i - NOWN] : NULL;
}

/* The name of each flag in table order, NULL behind the last. */
static const char *options_name(int i)
{
    const struct option_row *r;
    int j;

    for (j = 0; (r = options_row(j)); j++)
        if (r->name && i-- == 0)
            return r->name;
    return NULL;
}

/* Names are the same when they differ only in '-' and '_'. n: length of the given one. */
static int same_name(const char *row, const char *given, size_t n)
{
    size_t i;

    if (strlen(row) != n)
        return 0;
    for (i = 0; i < n; i++)
        if (row[i] != (given[i] == '_' ? '-' : given[i]))
            return 0;
    return 1;
}

static const struct option_row *find_long(const char *name, size_t n)
{
    const struct option_row *r;
    int i;

    for (i = 0; (r = options_row(i)); i++)
        if (r->name && same_name(r->name, name, n))
            return r;
    return NULL;
}

static const struct option_row *find_letter(char c)
{
    const struct option_row *r;
    int i;

    for (i = 0; (r = options_row(i)); i++)
        if (r->name && r->letter == c)
            return r;
    return NULL;
}

static int unknown_flag(const char *word, size_t n, struct err *err)
{
    const char **names = xcalloc((size_t)(NOWN + options_torch_n) + 1, sizeof *names), *near;
    char *given = xstrndup(word, n);
    int i, count = 0;
    char *p;

    for (p = given; *p; p++)
        if (*p == '_')
            *p = '-';
    for (i = 0; (names[count] = options_name(i)); i++)
        count++;
    near = nearest_word(given + strspn(given, "-"), names, (size_t)count);
    free(given);
    free(names);
    return err_set(err, ERR_INPUT, "unknown option %.*s%s%s; see ds-launch --help", (int)n, word,
                   near ? ", did you mean --" : "", near ? near : "");
}

static int bad_value(const struct option_row *r, const char *v, const char *wants, struct err *err)
{
    return err_set(err, ERR_INPUT, "--%s %s: %s", r->name, v, wants);
}

static int store_int(struct options *o, const struct option_row *r, const char *v, struct err *err)
{
    int64_t n;

    if (parse_i64(v, r->lo, r->hi, &n))
        return err_set(err, ERR_INPUT, "--%s %s: give a whole number from %lld to %lld", r->name, v,
                       (long long)r->lo, (long long)r->hi);
    *(int *)((char *)o + r->offset) = (int)n;
    return 0;
}

static int store_ms(struct options *o, const struct option_row *r, const char *v, struct err *err)
{
    int64_t n;

    if (parse_ms(v, &n) || n < r->lo)
        return err_set(err, ERR_INPUT, "--%s %s: give a time of at least %lld ms, such as 30s or 500ms",
                       r->name, v, (long long)r->lo);
    *(int64_t *)((char *)o + r->offset) = n;
    return 0;
}

static int store_str(struct options *o, const struct option_row *r, const char *v, struct err *err)
{
    char **at = (char **)((char *)o + r->offset);

    if (!*v)
        return bad_value(r, "''", "the value is empty", err);
    free(*at);
    *at = xstrdup(v);
    return 0;
}

static int store_word(struct options *o, const struct option_row *r, const char *v, struct err *err)
{
    const char *p = r->extra;
    size_t n;

    for (; *p; p += n + (p[n] == '|')) {
        n = strcspn(p, "|");
        if (strlen(v) == n && !strncmp(p, v, n))
            return store_str(o, r, v, err);
    }
    return err_set(err, ERR_INPUT, "--%s %s: give one of %s", r->name, v, r->extra);
}

/* deepspeed's names in any case: pdsh reaches its hosts over SSH, and so does ssh; the others hand the start of
 * the ranks to another program. */
static int store_launcher(struct options *o, const struct option_row *r, const char *v, struct buf *warn,
                          struct err *err)
{
    static const char *const starters[] = {"openmpi", "mvapich", "mpich", "impi", NULL};
    char *word = xstrdup(v), *p;
    int i, rc;

    for (p = word; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    for (i = 0; starters[i]; i++)
        if (!strcmp(word, starters[i])) {
            free(word);
            return bad_value(r, v, "there is no mpirun in between, ds-launch starts the ranks itself; use ssh", err);
        }
    if (!strcmp(word, "pdsh")) {
        buf_adds(warn, "--launcher pdsh: hosts are reached over SSH without pdsh (--launcher ssh)\n");
        strcpy(word, "ssh");
    }
    rc = store_word(o, r, word, err);
    free(word);
    return rc;
}

static int store_set(struct options *o, const char *v, struct err *err)
{
    const char *eq = strchr(v, '=');
    char *path, *where;

    if (!eq || eq == v)
        return err_set(err, ERR_INPUT, "--set %s: give PATH=VALUE, such as run.steps=100", v);
    path = xstrndup(v, (size_t)(eq - v));
    where = xasprintf("--set %s", path);
    settings_rows_add(&o->set, path, eq + 1, where);
    free(path);
    free(where);
    return 0;
}

static int store_row(struct options *o, const struct option_row *r, const char *v, struct err *err)
{
    char where[64];

    if (!*v)
        return bad_value(r, "''", "the value is empty", err);
    snprintf(where, sizeof where, "--%s", r->name);
    settings_rows_add(&o->set, r->extra, v, where);
    return 0;
}

static int store(struct options *o, const struct option_row *r, const char *v, struct buf *out,
                 struct buf *warn, struct err *err)
{
    switch (r->kind) {
    case OPT_FLAG:
        *(int *)((char *)o + r->offset) = 1;
        return 0;
    case OPT_INT:
        return store_int(o, r, v, err);
    case OPT_MS:
        return store_ms(o, r, v, err);
    case OPT_STR:
        return store_str(o, r, v, err);
    case OPT_WORD:
        return r->offset == AT(launcher) ? store_launcher(o, r, v, warn, err) : store_word(o, r, v, err);
    case OPT_LIST:
        o->export = xrealloc(o->export, (size_t)(o->nexports + 1) * sizeof *o->export);
        o->export[o->nexports++] = xstrdup(v);
        return 0;
    case OPT_SET:
        return store_set(o, v, err);
    case OPT_ROW:
        return store_row(o, r, v, err);
    case OPT_NOTHING:
        buf_addf(warn, "--%s has no effect: %s\n", r->name, r->extra);
        return 0;
    case OPT_REFUSED:
        return err_set(err, ERR_INPUT, "--%s is not supported: %s", r->name, r->extra);
    case OPT_TORCH:
        return options_torch_store(o, r, v, warn, err);
    case OPT_HELP:
        options_help(o->argc ? o->argv[0] : NULL, out);
        return 1;
    case OPT_VERSION:
        buf_addf(out, "ds-launch %s\n", PACKAGE_VERSION);
        return 1;
    }
    return 0;
}

/* One flag at argv[*i]; *i moves behind it and its value. */
static int take_flag(struct options *o, char **argv, int argc, int *i, struct buf *out,
                     struct buf *warn, struct err *err)
{
    const char *word = argv[*i], *value = NULL;
    const struct option_row *r;
    size_t n = strlen(word);

    if (word[1] == '-') {
        n = strcspn(word, "=");
        value = word[n] == '=' ? word + n + 1 : NULL;
        r = find_long(word + 2, n - 2);
    } else {
        r = find_letter(word[1]);
        value = word[2] ? word + 2 : NULL;
    }
    if (!r)
        return unknown_flag(word, n, err);
    if (!r->arg && value && word[1] != '-')
        return err_set(err, ERR_INPUT, "-%c takes no value, but %s was given", r->letter, word);
    if (!r->arg && value)
        return err_set(err, ERR_INPUT, "--%s takes no value", r->name);
    if (r->arg && !value && r->kind != OPT_REFUSED) {
        if (*i + 1 >= argc)
            return err_set(err, ERR_INPUT, "--%s needs a value: %s", r->name, r->arg);
        value = argv[++*i];
    }
    ++*i;
    if (r->kind < OPT_NOTHING || r->kind == OPT_TORCH) {
        o->given = xrealloc(o->given, (size_t)(o->ngiven + 1) * sizeof *o->given);
        o->given[o->ngiven++] = r->name;
    }
    return store(o, r, value, out, warn, err);
}

#define COUNTS " num-nodes num-gpus num-accelerators nnodes nproc-per-node "

/* Values that contradict each other. */
static int check(const struct options *o, struct err *err)
{
    enum log_level level;
    const char *number;

    if (o->hostfile && o->hosts)
        return err_set(err, ERR_INPUT, "--hostfile and --hosts exclude each other; give one of them");
    if (o->include && o->exclude)
        return err_set(err, ERR_INPUT, "--include and --exclude exclude each other; give one of them");
    if ((o->include || o->exclude) && (o->num_nodes >= 0 || o->ranks_per_node >= 0 || o->torch.nproc) &&
        (number = options_given(o, COUNTS)))
        return err_set(err, ERR_INPUT, "--%s cannot be given together with --%s; say it all in the filter", number,
                       o->include ? "include" : "exclude");
    if (o->bind_cores && o->bind_to && strcmp(o->bind_to, "core"))
        return err_set(err, ERR_INPUT, "--bind-cores-to-rank is --bind-to core, but --bind-to %s is given too; give "
                       "one of them", o->bind_to);
    if (o->module && o->no_python)
        return err_set(err, ERR_INPUT, "--module and --no_python exclude each other");
    if (o->prefix_style && output_prefix_parse(o->prefix_style) < 0)
        return err_set(err, ERR_INPUT, "--prefix %s: give none, or rank, host:rank and time with commas between",
                       o->prefix_style);
    if (o->log_level && log_level_parse(o->log_level, &level))
        return err_set(err, ERR_INPUT, "--log-level %s: give debug, info, warning or error",
                       o->log_level);
    if (o->launcher_args && (!o->launcher || strcmp(o->launcher, "exec")))
        return err_set(err, ERR_INPUT, "--launcher-args belongs to --launcher exec; ssh takes its options "
                       "from --ssh-config, --ssh-port and --identity");
    if (o->launcher && !strcmp(o->launcher, "exec") && !o->launcher_args)
        return err_set(err, ERR_INPUT, "--launcher exec needs --launcher-args with the command that "
                       "reaches %%h, for example 'kubectl exec -i %%h --' or 'docker exec -i %%h'");
    return options_torch_check(o, err);
}

int options_parse(struct options *o, int argc, char **argv, struct buf *out, struct buf *warn,
                  struct err *err)
{
    int i = 1, k, rc = 0;

    memset(o, 0, sizeof *o);
    o->line = argv;
    o->nline = argc;
    o->num_nodes = o->ranks_per_node = -1;
    o->connect_timeout_ms = o->ping_limit_ms = o->grace_ms = o->timeout_ms = -1;
    while (i < argc && argv[i][0] == '-' && argv[i][1] && !rc) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        rc = take_flag(o, argv, argc, &i, out, warn, err);
    }
    o->argv = xcalloc((size_t)(argc - i) + 1, sizeof *o->argv);
    for (k = i; k < argc; k++)
        o->argv[o->argc++] = xstrdup(argv[k]);
    return rc ? rc : check(o, err);
}

int options_is_job(const char *word)
{
    size_t n = strlen(word);

    return (n > 4 && !strcmp(word + n - 4, ".ini")) || (n > 5 && !strcmp(word + n - 5, ".json"));
}

int options_parse_more(struct options *o, struct buf *out, struct buf *warn, struct err *err)
{
    char **old = o->argv;
    int n = o->argc, i = 1, rc = 0, plain = 0;

    if (!n)
        return 0;
    o->argv = xcalloc((size_t)n + 1, sizeof *o->argv);
    o->argv[0] = xstrdup(old[0]);
    o->argc = 1;
    while (i < n && !rc) {
        if (!plain && !strcmp(old[i], "--")) {
            plain = 1;
            i++;
        } else if (!plain && old[i][0] == '-' && old[i][1]) {
            rc = take_flag(o, old, n, &i, out, warn, err);
        } else {
            plain = !options_is_job(old[i]) && strcmp(o->argv[0], "kill"); /* a program keeps its own flags */
            o->argv[o->argc++] = xstrdup(old[i++]);
        }
    }
    for (i = 0; i < n; i++)
        free(old[i]);
    free(old);
    return rc ? rc : check(o, err);
}

void options_warn_behind(const struct options *o, struct buf *warn)
{
    const struct option_row *r;
    int i;

    for (i = 1; i < o->argc; i++) {
        const char *w = o->argv[i];

        if (w[0] != '-' || w[1] != '-' || !w[2])
            continue;
        r = find_long(w + 2, strcspn(w + 2, "="));
        if (r && r->kind != OPT_HELP && r->kind != OPT_VERSION && strcmp(r->name, "deepspeed-config"))
            buf_addf(warn, "%s stands behind the program and goes to it; options of ds-launch stand "
                     "in front of %s\n", w, o->argv[0]);
    }
}

void options_clear(struct options *o)
{
    char **strings[] = {
        &o->hostfile,   &o->hosts,    &o->include,        &o->exclude,   &o->launcher,         &o->launcher_args,
        &o->ssh_config, &o->identity, &o->master_addr,    &o->interface, &o->prefix_style,     &o->color,
        &o->stdin_to,   &o->log_dir,  &o->run_dir,        &o->log_level, &o->deepspeed_config, &o->venv_script,
        &o->signal,     &o->bind_to,  &o->bind_core_list, &o->topology};
    size_t i;
    int k;

    for (i = 0; i < sizeof strings / sizeof strings[0]; i++)
        free(*strings[i]);
    for (k = 0; k < o->nexports; k++)
        free(o->export[k]);
    free(o->export);
    for (k = 0; k < o->argc; k++)
        free(o->argv[k]);
    free(o->argv);
    free(o->given);
    settings_rows_clear(&o->set);
    options_torch_clear(&o->torch);
    memset(o, 0, sizeof *o);
}
