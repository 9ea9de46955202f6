/* Which options each command has a use for. Any other that is given is refused, so that nobody counts on what does
 * nothing: exec --dry-run would run its command, --timeout in front of a program would never end it. */
#include "launcher/options.h"

#include "engine/base/buf.h"

#include <string.h>

#define WHERE " hostfile hosts include exclude num-nodes num-gpus num-accelerators nnodes nproc-per-node standalone "
#define REACH " launcher launcher-args ssh-port ssh-config identity connect-timeout ping-limit "

static const struct command {
    const char *name; /* NULL: the start of a program or job */
    int but;          /* 1: all options but these; 0: these alone */
    const char *words;
} commands[] = {
    {NULL, 1, " list json live settings timeout signal topology "},
    {"plan", 1, " list live settings timeout signal "},
    {"exec", 0, WHERE REACH " export live grace timeout "},
    {"hosts", 0, WHERE " list json "},
    {"info", 0, REACH " settings "},
    {"ps", 0, " json "},
    {"kill", 0, " signal "},
};
#define NCOMMANDS ((int)(sizeof commands / sizeof *commands))

static const char everywhere[] = " log-level quiet ";

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

static void add_owners(const char *option, struct buf *out)
{
    int i;

    for (i = 0; i < NCOMMANDS; i++)
        if (has_use(&commands[i], option))
            buf_addf(out, "%s%s%s", out->len ? ", " : "", commands[i].name ? "ds-launch " : "",
                     commands[i].name ? commands[i].name : "the start of a program or job");
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
