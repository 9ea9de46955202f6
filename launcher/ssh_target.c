/* From options, hostfile and configuration files to one login: see ssh_target.h. The reading of files
 * happens here, the understanding of them in ssh_config.c and known_hosts.c. */
#include "launcher/ssh_target.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG_BYTES (1u << 20)
#define KNOWN_BYTES (256u << 20)

struct text_file {
    char *path;
    struct buf text;
    int user; /* the user's own, not the machine's */
};

struct known_files { /* one list of known_hosts files, read */
    char *list;      /* joined with newlines */
    struct known_hosts *known;
    char *first;
};

struct ssh_files {
    const struct options *options;
    char *home, *me;
    struct text_file file[2], *included;
    int nfiles, nincluded, cap_included;
    int checked; /* every block was read once: for one host, thousands of others need not do it again */
    struct known_files *known;
    int nknown, cap_known;
    char **note;
    int nnotes, cap_notes, told;
};

int ssh_read_file(const char *path, size_t limit, struct buf *out, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = -1;
    struct stat st;
    ssize_t n;
    char part[16384];

    if (fd < 0)
        return err_set(err, ERR_INPUT_FILE, "cannot read %s: %m", path);
    if (fstat(fd, &st))
        err_set(err, ERR_INPUT_FILE, "cannot read %s: %m", path);
    else if (S_ISDIR(st.st_mode))
        err_set(err, ERR_INPUT_FILE, "cannot read %s: it is a folder", path);
    else
        rc = 0;
    while (!rc && (n = read(fd, part, sizeof part)) != 0) {
        if (n < 0)
            rc = err_set(err, ERR_INPUT_FILE, "cannot read %s: %m", path);
        else if (out->len + (size_t)n > limit)
            rc = err_set(err, ERR_INPUT_LIMIT, "%s: longer than %zu bytes, so it is not what it should be",
                         path, limit);
        else
            buf_add(out, part, (size_t)n);
    }
    close(fd);
    return rc;
}

static void add_note(struct ssh_files *f, const char *text, size_t n)
{
    char *line = xstrndup(text, n);

    for (int i = 0; i < f->nnotes; i++)
        if (!strcmp(f->note[i], line)) {
            free(line);
            return;
        }
    ARRAY_GROW(f->note, f->nnotes, f->cap_notes);
    f->note[f->nnotes++] = line;
}

static void add_notes(struct ssh_files *f, const struct buf *lines)
{
    for (const char *p = buf_str(lines); *p;) {
        size_t n = strcspn(p, "\n");
        add_note(f, p, n);
        p += n + (p[n] == '\n');
    }
}

const char *ssh_files_note(struct ssh_files *f)
{
    return f->told < f->nnotes ? f->note[f->told++] : NULL;
}

/* OpenSSH's rule: a file that others can write decides nothing. */
static int check_owner(const char *path, struct err *err)
{
    struct stat st;

    if (stat(path, &st))
        return 0;
    if ((st.st_uid && st.st_uid != getuid()) || (st.st_mode & 022))
        return err_set(err, ERR_INPUT_FILE, "%s: others may write it, so it cannot be trusted; chmod go-w %s",
                       path, path);
    return 0;
}

static int add_file(struct ssh_files *f, const char *path, int user, int must, struct err *err)
{
    struct text_file *t = &f->file[f->nfiles];

    if (!must && access(path, F_OK))
        return 0;
    if ((user && check_owner(path, err)) || ssh_read_file(path, CONFIG_BYTES, &t->text, err)) {
        buf_clear(&t->text);
        return -1;
    }
    t->path = xstrdup(path);
    t->user = user;
    f->nfiles++;
    return 0;
}

int ssh_files_create(struct ssh_files **out, const struct options *o, struct err *err)
{
    struct ssh_files *f = xcalloc(1, sizeof *f);
    struct passwd *pw = getpwuid(getuid());
    const char *home = pw ? pw->pw_dir : getenv("HOME");
    const char *me = pw ? pw->pw_name : getenv("USER");
    int rc = 0;

    if (o->identity && access(o->identity, R_OK)) {
        free(f);
        return err_set(err, ERR_INPUT_FILE, "--identity %s: %m", o->identity);
    }
    f->options = o;
    f->home = xstrdup(home ? home : "/");
    f->me = me && *me ? xstrdup(me) : xasprintf("%u", (unsigned)getuid());
    if (!o->ssh_config) {
        char *path = xasprintf("%s/.ssh/config", f->home);
        rc = add_file(f, path, 1, 0, err) || add_file(f, "/etc/ssh/ssh_config", 0, 0, err) ? -1 : 0;
        free(path);
    } else if (strcmp(o->ssh_config, "none")) {
        rc = add_file(f, o->ssh_config, 1, 1, err);
    }
    if (rc) {
        ssh_files_destroy(f);
        return -1;
    }
    *out = f;
    return 0;
}

void ssh_files_destroy(struct ssh_files *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->nfiles; i++) {
        free(f->file[i].path);
        buf_clear(&f->file[i].text);
    }
    for (int i = 0; i < f->nincluded; i++) {
        free(f->included[i].path);
        buf_clear(&f->included[i].text);
    }
    free(f->included);
    for (int i = 0; i < f->nknown; i++) {
        free(f->known[i].list);
        free(f->known[i].first);
        known_hosts_destroy(f->known[i].known);
    }
    for (int i = 0; i < f->nnotes; i++)
        free(f->note[i]);
    free(f->known), free(f->note), free(f->home), free(f->me);
    free(f);
}

/* A file that is included, from memory when it was before; NULL: err says why. */
static const struct text_file *included(struct ssh_files *f, const char *path, int user, struct err *err)
{
    struct text_file t = {NULL, BUF_INIT, user};

    for (int i = 0; i < f->nincluded; i++)
        if (f->included[i].user == user && !strcmp(f->included[i].path, path))
            return &f->included[i];
    if ((user && check_owner(path, err)) || ssh_read_file(path, CONFIG_BYTES, &t.text, err)) {
        buf_clear(&t.text);
        return NULL;
    }
    t.path = xstrdup(path);
    ARRAY_GROW(f->included, f->nincluded, f->cap_included);
    f->included[f->nincluded] = t;
    return &f->included[f->nincluded++];
}

/* Include: glob relative to ~/.ssh or /etc/ssh; a pattern that finds nothing is fine, as in OpenSSH. */
static int include(void *ctx, const char *pattern, int user,
                   int (*each)(void *, const char *, const char *, size_t, struct err *), void *arg,
                   struct err *err)
{
    struct ssh_files *f = ctx;
    struct buf path = BUF_INIT;
    glob_t g = {0};
    int rc = 0;

    if (pattern[0] == '~')
        buf_addf(&path, "%s%s", f->home, pattern + 1);
    else if (pattern[0] == '/')
        buf_adds(&path, pattern);
    else if (user)
        buf_addf(&path, "%s/.ssh/%s", f->home, pattern);
    else
        buf_addf(&path, "/etc/ssh/%s", pattern);
    if (!glob(path.data, 0, NULL, &g))
        for (size_t i = 0; i < g.gl_pathc && !rc; i++) {
            const struct text_file *t = included(f, g.gl_pathv[i], user, err);
            struct buf text = t ? t->text : (struct buf)BUF_INIT; /* the array may move while it is read */

            rc = !t ? -1 : text.len ? each(arg, g.gl_pathv[i], text.data, text.len, err) : 0;
        }
    globfree(&g);
    buf_clear(&path);
    return rc;
}

static void words_add(struct ssh_words *w, char *owned)
{
    ARRAY_GROW(w->word, w->n, w->cap);
    w->word[w->n++] = owned;
}

static void words_clear(struct ssh_words *w)
{
    for (int i = 0; i < w->n; i++)
        free(w->word[i]);
    free(w->word);
    *w = (struct ssh_words){0};
}

void ssh_target_clear(struct ssh_target *t)
{
    free(t->name), free(t->host), free(t->user), free(t->key_name), free(t->agent_socket), free(t->jump);
    words_clear(&t->identity);
    *t = (struct ssh_target){0};
}

static struct ssh_tokens tokens_of(const struct ssh_files *f, const struct ssh_target *t)
{
    return (struct ssh_tokens){.host = t->host, .original = t->name, .remote_user = t->user,
                               .local_user = f->me, .home = f->home, .port = t->port};
}

static int expand_into(struct ssh_words *w, const char *text, const struct ssh_tokens *tokens,
                       struct err *err)
{
    struct buf b = BUF_INIT;

    if (ssh_config_expand(text, tokens, &b, err)) {
        buf_clear(&b);
        return -1;
    }
    words_add(w, buf_detach(&b));
    return 0;
}

static const char *const default_keys[] = {"~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"};
static const char *const user_known[] = {"~/.ssh/known_hosts", "~/.ssh/known_hosts2"};
static const char *const global_known[] = {"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"};

static int set_keys(struct ssh_files *f, const struct ssh_config *c, struct ssh_target *t, struct err *err)
{
    struct ssh_tokens tokens = tokens_of(f, t);
    const char *agent = c->identity_agent ? c->identity_agent : "SSH_AUTH_SOCK";
    struct ssh_words socket = {0};
    int rc = 0;

    if (f->options->identity)
        rc = expand_into(&t->identity, f->options->identity, &tokens, err);
    for (int i = 0; i < c->identity.n && !rc; i++)
        rc = expand_into(&t->identity, c->identity.word[i], &tokens, err);
    t->nfirst = t->identity.n;
    for (size_t i = 0; i < 3 && !rc && !c->identity.given; i++)
        rc = expand_into(&t->identity, default_keys[i], &tokens, err);
    if (!strcmp(agent, "SSH_AUTH_SOCK"))
        agent = getenv("SSH_AUTH_SOCK");
    else if (agent[0] == '$')
        agent = getenv(agent + 1);
    else if (!strcmp(agent, "none"))
        agent = NULL;
    if (!rc && agent && *agent)
        rc = expand_into(&socket, agent, &tokens, err);
    t->agent_if_locked = c->identities_only == 1;
    t->agent_socket = socket.n ? xstrdup(socket.word[0]) : NULL;
    words_clear(&socket);
    return rc;
}

/* The known hosts of a list of files, from memory when another host named the same. */
static const struct known_files *known_of(struct ssh_files *f, const struct ssh_words *paths)
{
    struct buf list = BUF_INIT, notes = BUF_INIT;

    buf_adds(&list, "");
    for (int i = 0; i < paths->n; i++)
        buf_addf(&list, "%s\n", paths->word[i]);
    for (int i = 0; i < f->nknown; i++)
        if (!strcmp(f->known[i].list, buf_str(&list))) {
            buf_clear(&list);
            return &f->known[i];
        }
    struct known_hosts *k = known_hosts_create();
    for (int i = 0; i < paths->n; i++) {
        struct buf text = BUF_INIT;
        struct err e = ERR_INIT;
        if (!ssh_read_file(paths->word[i], KNOWN_BYTES, &text, &e)) {
            if (text.len)
                known_hosts_add(k, paths->word[i], text.data, text.len, &notes);
        } else if (!access(paths->word[i], F_OK)) {
            add_note(f, e.text, strlen(e.text));
        }
        buf_clear(&text);
    }
    add_notes(f, &notes);
    buf_clear(&notes);
    ARRAY_GROW(f->known, f->nknown, f->cap_known);
    f->known[f->nknown] = (struct known_files){xstrdup(buf_str(&list)), k,
                                               paths->n ? xstrdup(paths->word[0]) : NULL};
    buf_clear(&list);
    return &f->known[f->nknown++];
}

static int set_known(struct ssh_files *f, const struct ssh_config *c, struct ssh_target *t, struct err *err)
{
    struct ssh_tokens tokens = tokens_of(f, t);
    struct ssh_words paths = {0};
    int rc = 0;

    for (int i = 0; i < (c->user_known_hosts.given ? c->user_known_hosts.n : 2) && !rc; i++)
        rc = expand_into(&paths, c->user_known_hosts.given ? c->user_known_hosts.word[i] : user_known[i],
                         &tokens, err);
    for (int i = 0; i < (c->global_known_hosts.given ? c->global_known_hosts.n : 2) && !rc; i++)
        rc = expand_into(&paths,
                         c->global_known_hosts.given ? c->global_known_hosts.word[i] : global_known[i],
                         &tokens, err);
    if (!rc) {
        const struct known_files *k = known_of(f, &paths);
        t->known = k->known;
        t->known_file = k->first;
    }
    words_clear(&paths);
    return rc;
}

static int set_host(struct ssh_files *f, const struct ssh_config *c, struct ssh_target *t, struct err *err)
{
    struct ssh_tokens tokens = {.host = t->name, .home = f->home, .local_user = f->me};
    struct ssh_words host = {0};

    if (expand_into(&host, c->hostname ? c->hostname : t->name, &tokens, err))
        return err_prefix(err, "HostName of %s", t->name);
    t->host = xstrdup(host.word[0]);
    words_clear(&host);
    t->key_name = xstrdup(c->host_key_alias ? c->host_key_alias : t->host);
    t->family = c->family > 0 ? c->family : SSH_FAMILY_ANY;
    t->attempt_ms = c->connect_timeout_ms;
    t->jump = c->proxy_jump && strcmp(c->proxy_jump, "none") ? xstrdup(c->proxy_jump) : NULL;
    return 0;
}

int ssh_files_target(struct ssh_files *f, const char *name, const char *user, int port,
                     struct ssh_target *t, struct err *err)
{
    struct ssh_config c;
    int rc = 0;

    *t = (struct ssh_target){.name = xstrdup(name)};
    ssh_config_init(&c);
    c.skim = f->checked;
    f->checked = 1;
    for (int i = 0; i < f->nfiles && !rc; i++)
        if (f->file[i].text.len)
            rc = ssh_config_apply(&c, name, f->file[i].path, f->file[i].user, f->file[i].text.data,
                                  f->file[i].text.len, &(struct ssh_config_files){f, include}, err);
    add_notes(f, &c.notes);
    t->user = xstrdup(user ? user : c.user ? c.user : f->me);
    t->port = port                  ? port
              : f->options->ssh_port > 0 ? f->options->ssh_port
              : c.port              ? c.port
                                    : 22;
    rc = rc || set_host(f, &c, t, err) || set_keys(f, &c, t, err) || set_known(f, &c, t, err) ? -1 : 0;
    ssh_config_clear(&c);
    if (rc)
        ssh_target_clear(t);
    return rc;
}
