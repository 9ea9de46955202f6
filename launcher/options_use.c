/* Which options each command has a use for. Any other that is given is refused, so that nobody counts on what does
 * nothing: exec --dry-run would run its command, --timeout in front of a program would never end it. */
#include "launcher/options_table.h"

#include <string.h>

#define WHERE " hostfile hosts include exclude num-nodes num-gpus num-accelerators nnodes nproc-per-node standalone "
#define REACH " launcher launcher-args ssh-port ssh-config identity connect-timeout ping-limit "

static const struct command {
    const char *name; /* NULL: the start of a program or job */
    const char *usage, *what;
    int but;          /* 1: all options but these; 0: these alone */
    const char *words;
} commands[] = {
    {NULL, NULL, NULL, 1, " list json live settings timeout signal topology "},
    {"plan", "[OPTION...] JOB.ini | PROGRAM [ARGUMENT...]",
     "Prints which rank would run where, and on which cores. Starts nothing and connects to nothing.", 1,
     " list live settings timeout signal "},
    {"exec", "[OPTION...] [--] COMMAND [ARGUMENT...]",
     "Runs one command on every host, and prints equal outputs once, under the list of their hosts.", 0,
     WHERE REACH " export live grace timeout "},
    {"hosts", "[OPTION...]", "Prints the hosts and slots that are left after all filters.", 0, WHERE " list json "},
    {"info", "[OPTION...]", "Prints the build, where its programs lie, and which launchers can be used.", 0,
     REACH " settings "},
    {"ps", "[--json]", "Lists your jobs that were started on this machine and run.", 0, " json "},
    {"kill", "[--signal NAME] JOB",
     "Sends a signal to a job: JOB is an id or the start of one, a name, or a run folder.", 0, " signal "},
};
#define NCOMMANDS ((int)(sizeof commands / sizeof *commands))

static const char everywhere[] = " log-level quiet help ";

static int stands_in(const char *words, const char *name)
{
    size_t n = strlen(name);
    const char *p = words;

    while ((p = strstr(p, name)) && (p[-1] != ' ' || p[n] != ' '))
        p++;
    return p != NULL;
}

static int has_use(const struct command *c, const char *option)
{
    return stands_in(everywhere, option) || stands_in(c->words, option) != c->but;
}

static const struct command *find(const char *word)
{
    int i;

    for (i = 1; word && i < NCOMMANDS; i++)
        if (!strcmp(commands[i].name, word))
            return &commands[i];
    return NULL;
}

int options_is_command(const char *word)
{
    return find(word) != NULL;
}

static void help_option(const struct option_row *r, struct buf *out)
{
    struct buf left = BUF_INIT;

    if (r->letter)
        buf_addf(&left, "-%c, ", r->letter);
    buf_addf(&left, "--%s%s%s", r->name, r->arg ? " " : "", r->kind == OPT_WORD ? r->extra : r->arg ? r->arg : "");
    buf_addf(out, left.len > 26 ? "  %s\n%30s%s\n" : "  %-26s%2s%s\n", buf_str(&left), "", r->help);
    buf_clear(&left);
}

static void help_options(const struct command *c, struct buf *out)
{
    const struct option_row *r;
    const char *head = NULL;
    int i;

    for (i = 0; (r = options_row(i)); i++) {
        if (!r->name)
            head = r->help;
        if (!r->name || !r->help || (c && !has_use(c, r->name)))
            continue;
        if (head)
            buf_addf(out, "\n%s:\n", head);
        head = NULL;
        help_option(r, out);
    }
}

void options_help(const char *command, struct buf *out)
{
    const struct command *c = find(command);

    if (c)
        buf_addf(out, "Usage: ds-launch %s %s\n\n%s\n", c->name, c->usage, c->what);
    else
        buf_adds(out, "Usage: ds-launch [OPTION...] JOB.ini\n"
                      "       ds-launch [OPTION...] PROGRAM [ARGUMENT...]\n"
                      "       ds-launch hosts|plan|info [OPTION...] [JOB.ini | PROGRAM...]\n"
                      "       ds-launch exec [OPTION...] [--] COMMAND [ARGUMENT...]\n"
                      "       ds-launch ps | kill [--signal NAME] JOB\n"
                      "       ds-launch data|ckpt|sample|lr ARGUMENT...\n\n"
                      "Trains a job, or starts a program, on every host of a hostfile at once.\n"
                      "With --help behind it a subcommand says what it takes.\n");
    help_options(c, out);
    buf_adds(out, "\nFlags may be spelled with - or _. Times are 30s, 500ms, 2m.\n");
    if (!c)
        buf_adds(out, "Options of deepspeed and torchrun without a use here are refused with the reason.\n");
}

static void add_owners(const char *option, struct buf *out)
{
    int i;

    for (i = 0; i < NCOMMANDS; i++)
        if (has_use(&commands[i], option))
            buf_addf(out, "%s%s%s", out->len ? ", " : "", commands[i].name ? "ds-launch " : "",
                     commands[i].name ? commands[i].name : "the start of a program or job");
}

const char *options_given(const struct options *o, const char *names)
{
    int i = o->ngiven;

    while (i-- > 0)
        if (stands_in(names, o->given[i]))
            return o->given[i];
    return NULL;
}

int options_check_use(const struct options *o, struct err *err)
{
    const struct command *c = o->argc && find(o->argv[0]) ? find(o->argv[0]) : &commands[0];
    struct buf owners = BUF_INIT;
    int i;

    for (i = 0; i < o->ngiven && has_use(c, o->given[i]); i++)
        ;
    if (i == o->ngiven)
        return 0;
    add_owners(o->given[i], &owners);
    err_set(err, ERR_INPUT, "--%s would do nothing in %s%s: leave it out; it is for %s", o->given[i],
            c->name ? "ds-launch " : "", c->name ? c->name : "the start of a program or job", buf_str(&owners));
    buf_clear(&owners);
    return -1;
}
