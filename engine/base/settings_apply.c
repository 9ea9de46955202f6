/* Rows of a file against the tables: finds each row's setting, words the errors, warns of what has
 * no effect. All errors of a file come in one go. */
#include "engine/base/parse.h"
#include "engine/base/settings_impl.h"

#include <stdlib.h>
#include <string.h>

#define ERRORS_ROOM (ERR_TEXT_BYTES - 40) /* what is left must hold "... and N more" */

void errors_add(struct errors *e, const char *fmt, ...)
{
    struct buf line = BUF_INIT;
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&line, fmt, ap);
    va_end(ap);
    if (e->n && e->text.len + 1 + line.len > ERRORS_ROOM) {
        e->more++;
    } else {
        if (e->n++)
            buf_addc(&e->text, '\n');
        buf_add(&e->text, line.data, line.len);
    }
    buf_clear(&line);
}

int errors_done(struct errors *e, struct err *err)
{
    int rc = e->n ? -1 : 0;

    if (e->more)
        buf_addf(&e->text, "\n... and %d more", e->more);
    if (rc < 0)
        err_set(err, ERR_INPUT, "%s", buf_str(&e->text));
    buf_clear(&e->text);
    *e = (struct errors){0};
    return rc;
}

struct apply {
    struct settings *const *tables;
    int ntables;
    const struct settings_rows *rows;
    const char *skip;
    struct buf *warn;
    struct errors errors;
    const struct settings_row **setter; /* [all rows of all tables] who set it in this call */
    uint8_t *reported;                  /* [all rows of all tables] PREFIX: said once */
    char *section;                      /* unknown, said last; owned */
};

/* Table and row of path. Exact rows win over sections. 0 or -1. */
static int find_row(const struct apply *a, const char *path, int *t, int *i)
{
    for (int pass = 0; pass < 2; pass++) {
        for (*t = 0; *t < a->ntables; (*t)++) {
            const struct settings *s = a->tables[*t];

            for (*i = 0; *i < s->n; (*i)++) {
                const struct setting *row = &s->table[*i];
                size_t n = strlen(row->path);

                if (row->flags & SETTING_PREFIX
                        ? pass == 1 && strncmp(path, row->path, n) == 0 && path[n] == '.'
                        : pass == 0 && strcmp(path, row->path) == 0)
                    return 0;
            }
        }
    }
    return -1;
}

static int flat_index(const struct apply *a, int t, int i)
{
    for (int k = 0; k < t; k++)
        i += a->tables[k]->n;
    return i;
}

static const char *last_name(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

/* The known path nearest to this one: by the whole path, else by its last name. NULL: none is near.
 */
static const char *nearest_path(const struct apply *a, const char *path)
{
    const char **full = NULL, **last = NULL, *found;
    int n = 0, cap = 0, cap_last = 0;

    for (int t = 0; t < a->ntables; t++) {
        for (int i = 0; i < a->tables[t]->n; i++) {
            const struct setting *row = &a->tables[t]->table[i];

            if (row->flags & (SETTING_REFUSED | SETTING_IGNORED | SETTING_ALIAS | SETTING_PREFIX))
                continue;
            ARRAY_GROW(full, n, cap);
            ARRAY_GROW(last, n, cap_last);
            full[n] = row->path;
            last[n++] = last_name(row->path);
        }
    }
    /* Same name in another section first: [optimizer] lr is optimizer.params.lr. */
    found = NULL;
    for (int i = 0; i < n && !found; i++)
        if (strcmp(last[i], last_name(path)) == 0)
            found = full[i];
    if (!found)
        found = nearest_word(path, full, (size_t)n);
    if (!found) {
        const char *name = nearest_word(last_name(path), last, (size_t)n);

        for (int i = 0; i < n && name && !found; i++)
            if (last[i] == name)
                found = full[i];
    }
    free(full);
    free(last);
    return found;
}

/* Length of the section in front of a path's last name; 0: none. */
static size_t section_len(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? (size_t)(dot - path) : 0;
}

/* A section that no setting has and that is like one that some have: told once, not once per key. 1: told. */
static int unknown_section(struct apply *a, const struct settings_row *r)
{
    size_t len = section_len(r->path);
    char *given = xstrndup(r->path, len), **names = NULL;
    const char *near;
    int n = 0, cap = 0, known = !len;

    if (a->skip) {
        ARRAY_GROW(names, n, cap);
        names[n++] = xstrndup(a->skip, strcspn(a->skip, "."));
    }
    for (int t = 0; t < a->ntables; t++)
        for (int i = 0; i < a->tables[t]->n; i++) {
            const char *path = a->tables[t]->table[i].path;
            size_t k = section_len(path);

            known |= k == len && strncmp(path, r->path, len) == 0;
            known |= strlen(path) == len && strncmp(path, r->path, len) == 0;
            if (!k || (n && strlen(names[n - 1]) == k && strncmp(path, names[n - 1], k) == 0))
                continue;
            ARRAY_GROW(names, n, cap);
            names[n++] = xstrndup(path, k);
        }
    near = known ? NULL : nearest_word(given, (const char *const *)names, (size_t)n);
    if (near && (!a->section || strcmp(a->section, given) != 0)) {
        errors_add(&a->errors, "%s: unknown section [%s]; did you mean [%s]?", r->where, given, near);
        free(a->section);
        a->section = xstrdup(given);
    }
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    free(given);
    return near != NULL;
}

static void unknown(struct apply *a, const struct settings_row *r)
{
    const char *near;

    if (a->skip && strncmp(r->path, a->skip, strlen(a->skip)) == 0)
        return;
    if (unknown_section(a, r))
        return;
    near = nearest_path(a, r->path);
    if (near)
        errors_add(&a->errors, "%s: unknown setting %s; did you mean %s?", r->where, r->path, near);
    else
        errors_add(&a->errors, "%s: unknown setting %s; ds-launch info --settings lists all",
                   r->where, r->path);
}

/* Is the section of this PREFIX row switched off in the same file (SECTION.enabled = false)? */
static int section_is_off(const struct apply *a, const struct setting *row)
{
    char *path = xasprintf("%s.enabled", row->path);
    const struct settings_row *r = rows_find(a->rows, path);
    int on;

    free(path);
    return r && parse_bool(r->value, &on) == 0 && !on;
}

/* A setting of DeepSpeed that we know and do not have. */
static void known_only(struct apply *a, const struct setting *row, const struct settings_row *r,
                       uint8_t *said)
{
    if (row->flags & SETTING_PREFIX && (section_is_off(a, row) || (*said)++))
        return;
    if (!(row->flags & SETTING_PREFIX) &&
        (value_is_default(row, r->value) || strcmp(r->value, "auto") == 0))
        return;
    if (row->flags & SETTING_IGNORED) {
        if (a->warn)
            buf_addf(a->warn, "%s: %s%s has no effect here%s%s\n", r->where, row->path,
                     row->flags & SETTING_PREFIX ? ".*" : "", *row->help ? ": " : "", row->help);
        return;
    }
    if (row->flags & SETTING_PREFIX)
        errors_add(&a->errors, "%s: %s = %s: section %s of DeepSpeed is not supported%s%s",
                   r->where, r->path, r->value, row->path, *row->help ? ": " : "", row->help);
    else
        errors_add(&a->errors, "%s: %s = %s is not supported%s%s%s%s", r->where, r->path, r->value,
                   row->def ? ", only " : "", row->def ? row->def : "", *row->help ? ": " : "",
                   row->help);
}

static void apply_row(struct apply *a, const struct settings_row *r)
{
    const struct setting *row;
    const char *bad, *path = r->path;
    int t, i, at;

    bad = value_not_carried(r->value);
    if (bad) {
        errors_add(&a->errors, "%s: the value of %s %s", r->where, r->path, bad);
        return;
    }
    if (find_row(a, path, &t, &i) == 0 && a->tables[t]->table[i].flags & SETTING_ALIAS)
        path = a->tables[t]->table[i].def;
    if (find_row(a, path, &t, &i) < 0) {
        unknown(a, r);
        return;
    }
    row = &a->tables[t]->table[i];
    at = flat_index(a, t, i);
    if (row->flags & (SETTING_REFUSED | SETTING_IGNORED)) {
        known_only(a, row, r, &a->reported[at]);
        return;
    }
    if (a->setter[at]) {
        errors_add(&a->errors, "%s: %s is set twice: also as %s at %s; keep one", r->where, r->path,
                   a->setter[at]->path, a->setter[at]->where);
        return;
    }
    a->setter[at] = r;
    settings_store(a->tables[t], i, r->path, r->value, r->where, &a->errors);
    /* Tables of several layers may know the same path (a shared size): every one of them gets it.
     */
    for (t++; t < a->ntables; t++) {
        i = settings_find(a->tables[t]->table, a->tables[t]->n, path);
        if (i >= 0 &&
            !(a->tables[t]->table[i].flags & (SETTING_REFUSED | SETTING_IGNORED | SETTING_ALIAS)))
            settings_store(a->tables[t], i, r->path, r->value, r->where, &a->errors);
    }
}

int settings_apply(struct settings *const *tables, int ntables, const struct settings_rows *rows,
                   const char *skip, struct buf *warn, struct err *err)
{
    struct apply a = {tables, ntables, rows, skip, warn, {BUF_INIT, 0, 0}, NULL, NULL, NULL};
    size_t all = (size_t)flat_index(&a, ntables, 0);

    a.setter = xcalloc(all, sizeof *a.setter);
    a.reported = xcalloc(all, 1);
    for (int i = 0; i < rows->n; i++)
        apply_row(&a, &rows->row[i]);
    free(a.setter);
    free(a.reported);
    free(a.section);
    return errors_done(&a.errors, err);
}
