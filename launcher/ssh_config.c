/* The reader of ssh_config files: see ssh_config.h. */
#include "launcher/ssh_config.h"

#include "engine/base/parse.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define INCLUDE_DEPTH 16 /* as OpenSSH */

enum keyword {
    K_HOST, K_MATCH, K_INCLUDE, K_HOSTNAME, K_USER, K_PORT, K_IDENTITYFILE, K_IDENTITIESONLY,
    K_IDENTITYAGENT, K_PROXYJUMP, K_HOSTKEYALIAS, K_USERKNOWNHOSTS, K_GLOBALKNOWNHOSTS, K_STRICT,
    K_CONNECTTIMEOUT, K_FAMILY, K_TOLD, K_SILENT,
};

static const struct {
    const char *name;
    enum keyword id;
} keywords[] = {
    {"host", K_HOST}, {"match", K_MATCH}, {"include", K_INCLUDE}, {"hostname", K_HOSTNAME},
    {"user", K_USER}, {"port", K_PORT}, {"identityfile", K_IDENTITYFILE},
    {"identitiesonly", K_IDENTITIESONLY}, {"identityagent", K_IDENTITYAGENT},
    {"proxyjump", K_PROXYJUMP}, {"hostkeyalias", K_HOSTKEYALIAS},
    {"userknownhostsfile", K_USERKNOWNHOSTS}, {"globalknownhostsfile", K_GLOBALKNOWNHOSTS},
    {"stricthostkeychecking", K_STRICT}, {"connecttimeout", K_CONNECTTIMEOUT},
    {"addressfamily", K_FAMILY},
    /* not followed, and it may matter */
    {"proxycommand", K_TOLD}, {"certificatefile", K_TOLD}, {"knownhostscommand", K_TOLD},
    {"revokedhostkeys", K_TOLD}, {"hostkeyalgorithms", K_TOLD}, {"pkcs11provider", K_TOLD},
    {"securitykeyprovider", K_TOLD}, {"pubkeyauthentication", K_TOLD},
    {"pubkeyacceptedalgorithms", K_TOLD}, {"pubkeyacceptedkeytypes", K_TOLD},
    {"preferredauthentications", K_TOLD}, {"canonicalizehostname", K_TOLD},
    {"bindaddress", K_TOLD}, {"bindinterface", K_TOLD}, {"ciphers", K_TOLD}, {"macs", K_TOLD},
    {"kexalgorithms", K_TOLD}, {"casignaturealgorithms", K_TOLD}, {"verifyhostkeydns", K_TOLD},
    {"nohostauthenticationforlocalhost", K_TOLD},
};

struct reader_state {
    struct ssh_config *c;
    const char *host, *file;
    int user, line, active, depth;
    const struct ssh_config_files *files;
};

void ssh_config_init(struct ssh_config *c)
{
    *c = (struct ssh_config){.identities_only = -1, .family = -1, .connect_timeout_ms = -1};
}

static void words_clear(struct ssh_words *w)
{
    for (int i = 0; i < w->n; i++)
        free(w->word[i]);
    free(w->word);
    *w = (struct ssh_words){0};
}

void ssh_config_clear(struct ssh_config *c)
{
    free(c->hostname), free(c->user), free(c->proxy_jump);
    free(c->identity_agent), free(c->host_key_alias);
    words_clear(&c->identity);
    words_clear(&c->user_known_hosts);
    words_clear(&c->global_known_hosts);
    buf_clear(&c->notes);
    ssh_config_init(c);
}

static void words_add(struct ssh_words *w, const char *s, size_t n)
{
    ARRAY_GROW(w->word, w->n, w->cap);
    w->word[w->n++] = xstrndup(s, n);
}

/* Splits a line into words: blanks separate, one '=' may follow the keyword, double quotes keep blanks,
 * # at the start of a word ends the line. -1: a quote is not closed. */
static int split(const char *p, struct ssh_words *w)
{
    for (;;) {
        p += strspn(p, " \t\f\r");
        if (w->n == 1 && *p == '=')
            p += 1 + strspn(p + 1, " \t\f\r");
        if (!*p || *p == '#')
            return 0;
        if (*p == '"') {
            const char *end = strchr(p + 1, '"');
            if (!end)
                return -1;
            words_add(w, p + 1, (size_t)(end - p - 1));
            p = end + 1;
        } else {
            size_t n = strcspn(p, w->n == 0 ? " \t\f\r=\"" : " \t\f\r\"");
            words_add(w, p, n);
            p += n;
            if (!n) /* '=' where the keyword should stand */
                return -1;
        }
    }
}

static int host_matches(const char *host, const struct ssh_words *w)
{
    int hit = 0;

    for (int i = 1; i < w->n; i++) {
        int no = w->word[i][0] == '!';
        if (glob_match(w->word[i] + no, host)) {
            if (no)
                return 0;
            hit = 1;
        }
    }
    return hit;
}

static enum keyword find_keyword(const char *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (!strcasecmp(keywords[i].name, name))
            return keywords[i].id;
    return K_SILENT;
}

static void set_string(char **field, const char *value)
{
    if (!*field)
        *field = xstrdup(value);
}

static void set_files(struct ssh_words *field, const struct ssh_words *w)
{
    if (field->given)
        return;
    field->given = 1;
    for (int i = 1; i < w->n; i++)
        if (strcasecmp(w->word[i], "none"))
            words_add(field, w->word[i], strlen(w->word[i]));
}

static int bad(const struct reader_state *s, const struct ssh_words *w, const char *wanted,
               struct err *err)
{
    return err_set(err, ERR_INPUT, "%s:%d: %s %s: expected %s", s->file, s->line, w->word[0],
                   w->n > 1 ? w->word[1] : "(no value)", wanted);
}

static void note(const struct reader_state *s, const struct ssh_words *w, const char *what)
{
    buf_addf(&s->c->notes, "%s:%d: %s %s %s\n", s->file, s->line, w->word[0], w->word[1], what);
}

static int set_number(const struct reader_state *s, enum keyword id, const struct ssh_words *w,
                      struct err *err)
{
    struct ssh_config *c = s->c;
    const char *v = w->word[1];
    int64_t n;
    int b;

    switch (id) {
    case K_PORT:
        if (parse_i64(v, 1, 65535, &n))
            return bad(s, w, "a port, 1 to 65535", err);
        c->port = c->port ? c->port : (int)n;
        return 0;
    case K_IDENTITIESONLY:
        if (parse_bool(v, &b))
            return bad(s, w, "yes or no", err);
        c->identities_only = c->identities_only >= 0 ? c->identities_only : b;
        return 0;
    case K_FAMILY:
        b = !strcasecmp(v, "any")     ? SSH_FAMILY_ANY
            : !strcasecmp(v, "inet")  ? SSH_FAMILY_INET
            : !strcasecmp(v, "inet6") ? SSH_FAMILY_INET6
                                      : -1;
        if (b < 0)
            return bad(s, w, "any, inet or inet6", err);
        c->family = c->family >= 0 ? c->family : b;
        return 0;
    default: /* K_CONNECTTIMEOUT */
        if (!strcasecmp(v, "none"))
            return 0;
        if (parse_ms(v, &n) || n <= 0)
            return bad(s, w, "a number of seconds", err);
        c->connect_timeout_ms = c->connect_timeout_ms >= 0 ? c->connect_timeout_ms : n;
        return 0;
    }
}

static void set_strict(const struct reader_state *s, const struct ssh_words *w)
{
    if (!strcasecmp(w->word[1], "no") || !strcasecmp(w->word[1], "off") ||
        !strcasecmp(w->word[1], "accept-new"))
        note(s, w, "is taken as yes: ds-launch trusts no key that is not on record");
}

static int set_value(const struct reader_state *s, enum keyword id, const struct ssh_words *w,
                     struct err *err)
{
    struct ssh_config *c = s->c;
    const char *v = w->word[1];

    switch (id) {
    case K_HOSTNAME: set_string(&c->hostname, v); break;
    case K_USER: set_string(&c->user, v); break;
    case K_PROXYJUMP: set_string(&c->proxy_jump, v); break;
    case K_IDENTITYAGENT: set_string(&c->identity_agent, v); break;
    case K_HOSTKEYALIAS: set_string(&c->host_key_alias, v); break;
    case K_IDENTITYFILE:
        c->identity.given = 1;
        if (strcasecmp(v, "none"))
            words_add(&c->identity, v, strlen(v));
        break;
    case K_USERKNOWNHOSTS: set_files(&c->user_known_hosts, w); break;
    case K_GLOBALKNOWNHOSTS: set_files(&c->global_known_hosts, w); break;
    case K_STRICT: set_strict(s, w); break;
    case K_TOLD:
        if (strcasecmp(v, "none"))
            note(s, w, "is not followed by ds-launch");
        break;
    case K_SILENT: break;
    default: return set_number(s, id, w, err);
    }
    return 0;
}

static int read_text(struct reader_state *s, const char *text, size_t len, struct err *err);

static int read_included(void *arg, const char *file, const char *text, size_t len, struct err *err)
{
    struct reader_state inner = *(const struct reader_state *)arg;

    inner.file = file;
    inner.depth++;
    return read_text(&inner, text, len, err);
}

static int include(struct reader_state *s, const struct ssh_words *w, struct err *err)
{
    if (!s->files)
        return err_set(err, ERR_INPUT, "%s:%d: Include is not possible here", s->file, s->line);
    if (s->depth >= INCLUDE_DEPTH)
        return err_set(err, ERR_INPUT, "%s:%d: Include nests deeper than %d files", s->file, s->line,
                       INCLUDE_DEPTH);
    for (int i = 1; i < w->n; i++)
        if (s->files->include(s->files->ctx, w->word[i], s->user, read_included, s, err))
            return -1;
    return 0;
}

static int read_words(struct reader_state *s, const struct ssh_words *w, struct err *err)
{
    enum keyword id = find_keyword(w->word[0]);

    if (id == K_SILENT)
        return 0;
    if (w->n < 2 || !*w->word[1])
        return bad(s, w, "a value", err);
    if (id == K_HOST) {
        s->active = host_matches(s->host, w);
    } else if (id == K_MATCH) {
        s->active = w->n == 2 && !strcasecmp(w->word[1], "all");
        if (!s->active)
            note(s, w, "is left out with its block: only \"Match all\" is followed");
    } else if (!s->active) {
        return 0; /* an Include in a block that does not match cannot match either */
    } else if (id == K_INCLUDE) {
        return include(s, w, err);
    } else {
        return set_value(s, id, w, err);
    }
    return 0;
}

/* 1 when the line begins a block that may be this host's: a Match, or a Host that has a wildcard or holds the name. */
static int may_begin(const char *host, const char *p, const char *stop)
{
    while (p < stop && strchr(" \t\f\r", *p))
        p++;
    if (p < stop && *p == '"') /* the keyword may stand in quotes */
        return 1;
    if (stop - p < 5 || ((*p | 32) != 'h' && (*p | 32) != 'm'))
        return 0;
    if (!strncasecmp(p, "match", 5))
        return 1;
    if (strncasecmp(p, "host", 4) || !strchr(" \t\f\r=\"", p[4]))
        return 0;
    for (const char *c = p; c < stop; c++)
        if (*c == '*' || *c == '?' || *c == '!')
            return 1;
    return memmem(p, (size_t)(stop - p), host, strlen(host)) != NULL;
}

/* The next line of a block that is not this host's, skipped without a look inside; NULL at the end. */
static const char *skim(struct reader_state *s, const char *text, const char *end)
{
    while (text < end) {
        const char *nl = memchr(text, '\n', (size_t)(end - text));

        if (may_begin(s->host, text, nl ? nl : end))
            return text;
        s->line++;
        text = nl ? nl + 1 : end;
    }
    return NULL;
}

static int read_text(struct reader_state *s, const char *text, size_t len, struct err *err)
{
    const char *end = text + len;
    int rc = 0;

    s->line = 0;
    if (memchr(text, 0, len))
        return err_set(err, ERR_INPUT_FILE, "%s: holds a NUL byte, so it is no text file", s->file);
    while (!rc && text < end) {
        if (!s->active && s->c->skim && !(text = skim(s, text, end)))
            break;
        const char *nl = memchr(text, '\n', (size_t)(end - text)), *stop = nl ? nl : end;
        char *line = xstrndup(text, (size_t)(stop - text));
        struct ssh_words w = {0};
        s->line++;
        if (split(line, &w))
            rc = err_set(err, ERR_INPUT, "%s:%d: a quote is not closed or the keyword is missing",
                         s->file, s->line);
        else if (w.n)
            rc = read_words(s, &w, err);
        words_clear(&w);
        free(line);
        text = nl ? nl + 1 : end;
    }
    return rc;
}

int ssh_config_apply(struct ssh_config *c, const char *host, const char *file, int user,
                     const char *text, size_t len, const struct ssh_config_files *files,
                     struct err *err)
{
    struct reader_state s = {.c = c, .host = host, .file = file, .user = user, .active = 1,
                             .files = files};

    return len ? read_text(&s, text, len, err) : 0;
}

int ssh_config_expand(const char *text, const struct ssh_tokens *t, struct buf *out, struct err *err)
{
    const char *p = text;

    if (p[0] == '~' && (p[1] == '/' || !p[1]) && t->home) {
        buf_adds(out, t->home);
        p++;
    }
    for (; *p; p++) {
        const char *v = NULL;
        if (*p == '$' && p[1] == '{')
            return err_set(err, ERR_INPUT, "%s: ${...} is not supported here", text);
        if (*p != '%') {
            buf_addc(out, *p);
            continue;
        }
        switch (*++p) {
        case '%': v = "%"; break;
        case 'h': v = t->host; break;
        case 'n': v = t->original; break;
        case 'r': v = t->remote_user; break;
        case 'u': v = t->local_user; break;
        case 'd': v = t->home; break;
        case 'p':
            buf_addf(out, "%d", t->port);
            v = t->port ? "" : NULL;
            break;
        }
        if (!v)
            return err_set(err, ERR_INPUT, "%s: the token %%%.1s is not supported here", text, p);
        buf_adds(out, v);
    }
    return 0;
}

int ssh_split_destination(const char *text, size_t n, char **user, char **host, int *port)
{
    char *copy = xstrndup(text, n), *s = copy, *at, *colon = NULL;
    int64_t number = 0;
    int rc = -1;

    *user = *host = NULL, *port = 0;
    if (!strncasecmp(s, "ssh://", 6)) {
        s += 6;
        s[strcspn(s, "/")] = 0;
    }
    at = strrchr(s, '@');
    if (at)
        *at = 0;
    char *h = at ? at + 1 : s;
    if (*h == '[') {
        char *close = strchr(++h, ']');
        if (!close || (close[1] && close[1] != ':'))
            goto out;
        colon = close[1] ? close + 1 : NULL;
        *close = 0;
    } else {
        char *first = strchr(h, ':');
        colon = first && first == strrchr(h, ':') ? first : NULL; /* two colons: a bare IPv6 address */
    }
    if (colon) {
        *colon = 0;
        if (parse_i64(colon + 1, 1, 65535, &number))
            goto out;
    }
    if (!*h || (at && !*s) || strpbrk(h, " \t\"'"))
        goto out;
    *user = at ? xstrdup(s) : NULL;
    *host = xstrdup(h);
    *port = (int)number;
    rc = 0;
out:
    free(copy);
    return rc;
}
