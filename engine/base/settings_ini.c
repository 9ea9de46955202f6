/* INI text to rows, through inih: the one file that includes ini.h.
 *
 * inih alone would cut long lines and section names without a word, join indented lines to the
 * value before them and ignore what stands behind a section header. So it is fed line by line, and
 * every line passes guard() first; a bad line is reported and inih sees an empty one. Invariant:
 * when the handler runs, line is the number of the line it is called for. */
#include "engine/base/settings_impl.h"

#include <ini.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 4000
#define SECTION_MAX_BYTES 49 /* inih's MAX_SECTION less its NUL */

struct ini {
    struct settings_rows *rows;
    struct errors *errors;
    const char *name, *next, *end;
    int line;
    int skip;         /* the section header was bad: its keys are not looked at */
    struct buf value; /* of this line, when it is too long for inih's buffer */
    char *origin;     /* from a line ";@ WHERE": the place of the next setting; or NULL */
    int long_value;
};

static int is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static const char *skip_blanks(const char *p)
{
    while (is_blank(*p))
        p++;
    return p;
}

static int guard_section(struct ini *i, const char *line)
{
    const char *close = strchr(line, ']'), *rest;
    char *section;
    int good;

    i->skip = 1;
    if (!close) {
        errors_add(i->errors, "%s:%d: the section header %s has no ]", i->name, i->line, line);
        return -1;
    }
    rest = skip_blanks(close + 1);
    if (*rest && *rest != ';' && *rest != '#') {
        errors_add(i->errors, "%s:%d: text behind the section header: %s", i->name, i->line, rest);
        return -1;
    }
    section = xstrndup(line + 1, (size_t)(close - line - 1));
    good = path_is_valid(section) && strlen(section) <= SECTION_MAX_BYTES;
    if (!good)
        errors_add(
            i->errors,
            "%s:%d: [%s] is not a section name (letters, digits, _ - . and at most %d of them)",
            i->name, i->line, section, SECTION_MAX_BYTES);
    free(section);
    i->skip = !good;
    return good ? 0 : -1;
}

static int guard_key(struct ini *i, const char *line)
{
    size_t n = strcspn(line, "=:"), key = n;
    char *path;
    int good;

    if (!line[n]) {
        errors_add(i->errors, "%s:%d: neither a [section] nor key = value: %.60s", i->name, i->line,
                   line);
        return -1;
    }
    while (key && is_blank(line[key - 1]))
        key--;
    path = xstrndup(line, key);
    good = path_is_valid(path);
    if (!good)
        errors_add(i->errors, "%s:%d: '%.60s' is not a setting's name", i->name, i->line, path);
    free(path);
    if (!good)
        return -1;
    for (const char *p = line + n + 1; *p && *p != ';'; p++) {
        if (*p == '#' && is_blank(p[-1])) {
            errors_add(
                i->errors,
                "%s:%d: a comment behind a value begins with ; (or give it a line of its own)",
                i->name, i->line);
            return -1;
        }
    }
    return 0;
}

/* 0 when inih reads this line as a person does. */
static int guard(struct ini *i, const char *line)
{
    const char *p = skip_blanks(line);

    if (strlen(line) > LINE_MAX_BYTES) {
        errors_add(i->errors, "%s:%d: line longer than %d bytes", i->name, i->line, LINE_MAX_BYTES);
        return -1;
    }
    if (!*p || *p == ';' || *p == '#')
        return 0;
    for (const char *c = line; *c; c++) {
        if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f) {
            errors_add(i->errors, "%s:%d: has a control character (%d) in it", i->name, i->line,
                       *c);
            return -1;
        }
    }
    if (p != line) {
        errors_add(i->errors,
                   "%s:%d: begins with a blank; continuation lines are not supported, and keys and "
                   "sections begin in the first column",
                   i->name, i->line);
        return -1;
    }
    return *line == '[' ? guard_section(i, line) : guard_key(i, line);
}

/* key = value of a line that inih's buffer cannot hold: inih gets the key, the value is kept aside
 * by the same rules (a blank and ; begin a comment, blanks at both ends go). */
static void keep_value(struct ini *i, const char *value)
{
    size_t n = 0;

    value = skip_blanks(value);
    while (value[n] && !(value[n] == ';' && (n == 0 || is_blank(value[n - 1]))))
        n++;
    while (n && is_blank(value[n - 1]))
        n--;
    buf_reset(&i->value);
    buf_add(&i->value, value, n);
    i->long_value = 1;
}

/* Like fgets: the next line, at most size - 1 bytes. */
static char *next_line(char *out, int size, void *stream)
{
    struct ini *i = stream;
    const char *stop;
    char *line;
    size_t n;

    if (i->next >= i->end)
        return NULL;
    stop = memchr(i->next, '\n', (size_t)(i->end - i->next));
    n = (size_t)((stop ? stop : i->end) - i->next);
    line = xstrndup(i->next, n);
    i->next += n + (stop != NULL);
    i->line++;
    i->long_value = 0;
    if (n && line[n - 1] == '\r')
        line[--n] = 0;
    if (guard(i, line) < 0)
        n = 0;
    if (n > 3 && !strncmp(line, ";@ ", 3)) {
        free(i->origin);
        i->origin = xstrdup(line + 3);
    }
    if (n > 0 && strchr(";#", *skip_blanks(line)))
        n = 0;
    if (n + 2 > (size_t)size) {
        size_t key = strcspn(line, "=:");

        if (line[0] != '[' && key + 3 <= (size_t)size) {
            keep_value(i, line + key + 1);
            n = key + 1;
        } else {
            errors_add(i->errors, "%s:%d: name longer than %d bytes", i->name, i->line, size - 3);
            n = 0;
        }
    }
    memcpy(out, line, n);
    out[n] = '\n';
    out[n + 1] = 0;
    free(line);
    return out;
}

#if INI_HANDLER_LINENO
static int on_value(void *user, const char *section, const char *name, const char *value,
                    int lineno)
#else
static int on_value(void *user, const char *section, const char *name, const char *value)
#endif
{
    struct ini *i = user;
    const struct settings_row *earlier;
    char *path, *where;

    if (i->skip)
        return 1;
    path = *section ? xasprintf("%s.%s", section, name) : xstrdup(name);
    where = i->origin ? i->origin : xasprintf("%s:%d", i->name, i->line);
    i->origin = NULL;
    earlier = rows_find(i->rows, path);
    if (earlier)
        errors_add(i->errors, "%s: %s is set twice; first at %s", where, path, earlier->where);
    else
        settings_rows_add(i->rows, path, i->long_value ? buf_str(&i->value) : value, where);
    free(path);
    free(where);
    return 1;
}

void ini_read(struct settings_rows *rows, const char *name, const char *text, size_t len,
              struct errors *errors)
{
    struct ini i = {.rows = rows, .errors = errors, .name = name, .next = text, .end = text + len};
    int before = errors->n, bad = ini_parse_stream(next_line, &i, on_value, &i);

    /* guard() lets nothing through that inih cannot read; should it still complain, say so. */
    if (bad && errors->n == before)
        errors_add(errors, "%s:%d: not understood", name, bad > 0 ? bad : 1);
    buf_clear(&i.value);
    free(i.origin);
}
