/* A table bound to a struct: defaults, single values, the hash and the help text. See settings.h.
 */
#include "engine/base/hash.h"
#include "engine/base/settings_impl.h"

#include <stdlib.h>
#include <string.h>

#define NO_FIELD (SETTING_REFUSED | SETTING_IGNORED | SETTING_ALIAS | SETTING_PREFIX)

static void *field_of(const struct settings *s, int i)
{
    return (char *)s->config + s->table[i].offset;
}

static size_t field_bytes(enum setting_type type)
{
    switch (type) {
    case SETTING_BOOL:
    case SETTING_ENUM:
        return sizeof(int);
    case SETTING_F64:
        return sizeof(double);
    case SETTING_STR:
        return sizeof(char *);
    case SETTING_LIST:
        return sizeof(struct setting_list);
    case SETTING_INT:
    case SETTING_SIZE:
    case SETTING_MS:
        break;
    }
    return sizeof(int64_t);
}

void settings_init(struct settings *s, const struct setting *table, int n, void *config)
{
    *s = (struct settings){table, n, config, xcalloc((size_t)n, 1)};
    for (int i = 0; i < n; i++) {
        if (table[i].flags & NO_FIELD)
            continue;
        memset(field_of(s, i), 0, field_bytes(table[i].type));
        if (table[i].def)
            value_parse(&table[i], table[i].def, field_of(s, i), NULL);
    }
}

void settings_clear(struct settings *s)
{
    for (int i = 0; i < s->n; i++) {
        if (s->table[i].flags & NO_FIELD)
            continue;
        if (s->table[i].type == SETTING_STR)
            free(*(char **)field_of(s, i));
        memset(field_of(s, i), 0, field_bytes(s->table[i].type));
    }
    free(s->given);
    *s = (struct settings){0};
}

int settings_find(const struct setting *table, int n, const char *path)
{
    for (int i = 0; i < n; i++)
        if (strcmp(table[i].path, path) == 0)
            return i;
    return -1;
}

int settings_given(const struct settings *s, const char *path)
{
    int i = settings_find(s->table, s->n, path);

    return i >= 0 && s->given[i];
}

int settings_store(struct settings *s, int i, const char *path, const char *value,
                   const char *where, struct errors *errors)
{
    const struct setting *row = &s->table[i];
    struct buf want = BUF_INIT;

    /* "auto" is what integrations leave for DeepSpeed to fill in: the default, unless it is a word
     * of the setting's own. */
    if (strcmp(value, "auto") == 0 && row->type != SETTING_STR &&
        value_parse(row, value, NULL, NULL) < 0)
        return 0;
    if (value_parse(row, value, field_of(s, i), &want) < 0) {
        errors_add(errors, "%s: %s = %s: expected %s (%s)", where, path, value, buf_str(&want),
                   row->help);
        buf_clear(&want);
        return -1;
    }
    s->given[i] = 1;
    return 0;
}

int settings_set(struct settings *s, const char *path, const char *value, const char *where,
                 struct err *err)
{
    struct settings_rows rows = {0};
    int rc;

    settings_rows_add(&rows, path, value, where);
    rc = settings_apply(&s, 1, &rows, NULL, NULL, err);
    settings_rows_clear(&rows);
    return rc;
}

void settings_value(const struct settings *s, int i, struct buf *out)
{
    if (!(s->table[i].flags & NO_FIELD))
        value_print(&s->table[i], field_of(s, i), out);
}

uint64_t settings_hash(const struct settings *s)
{
    struct buf text = BUF_INIT;
    uint64_t h;

    for (int i = 0; i < s->n; i++) {
        if (!(s->table[i].flags & SETTING_IDENTITY))
            continue;
        buf_addf(&text, "%s=", s->table[i].path);
        settings_value(s, i, &text);
        buf_addc(&text, '\n');
    }
    h = hash64(buf_str(&text), text.len);
    buf_clear(&text);
    return h;
}

void settings_help(const struct setting *table, int n, struct buf *out)
{
    for (int i = 0; i < n; i++) {
        const struct setting *row = &table[i];

        buf_addf(out, "%s%s\n", row->path, row->flags & SETTING_PREFIX ? ".*" : "");
        if (row->flags & SETTING_ALIAS) {
            buf_addf(out, "    another name of %s\n", row->def);
            continue;
        }
        if (row->flags & (SETTING_REFUSED | SETTING_IGNORED)) {
            buf_addf(out, "    known from DeepSpeed, %s",
                     row->flags & SETTING_REFUSED ? "not supported" : "has no effect here");
            if (row->def && row->flags & SETTING_REFUSED)
                buf_addf(out, " (only %s)", row->def);
            buf_addf(out, "%s%s\n", *row->help ? ": " : "", row->help);
            continue;
        }
        buf_adds(out, "    ");
        value_describe(row, out);
        if (*row->unit)
            buf_addf(out, ", %s", row->unit);
        if (row->def)
            buf_addf(out, "; default %s", row->def);
        buf_addf(out, "\n    %s\n", row->help);
    }
}
