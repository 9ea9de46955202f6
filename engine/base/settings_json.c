/* JSON text to rows: nested objects become paths, arrays lists, null is not given.
 *
 * The parser does not keep where a key stood. It keeps the order of keys, so a second walk over the
 * text, known to be valid by then, finds the line of each key as the tree is visited. */
#include "engine/base/json.h"
#include "engine/base/settings_impl.h"

#include <stdlib.h>
#include <string.h>

struct json {
    struct settings_rows *rows;
    struct errors *errors;
    const char *name, *p, *end; /* p: how far the walk has come */
    int line;
    struct buf path;
};

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && strchr(" \t\r\n", *p))
        p++;
    return p;
}

/* Moves on behind the next key and its line: a string followed by a colon. */
static void next_key(struct json *j)
{
    while (j->p < j->end) {
        char c = *j->p++;

        if (c == '\n')
            j->line++;
        if (c != '"')
            continue;
        while (j->p < j->end && *j->p != '"')
            j->p += *j->p == '\\' ? 2 : 1;
        if (j->p < j->end)
            j->p++;
        if (j->p < j->end && skip_space(j->p, j->end) < j->end && *skip_space(j->p, j->end) == ':')
            return;
    }
}

/* Walks over the keys inside v, which is kept as text. */
static void pass_keys(struct json *j, const struct jv *v)
{
    const struct jv *item;
    void *at = NULL;

    if (jv_type(v) == JV_OBJECT) {
        while (jv_next(v, &at, &item)) {
            next_key(j);
            pass_keys(j, item);
        }
    } else {
        for (size_t i = 0; i < jv_count(v); i++)
            pass_keys(j, jv_item(v, i));
    }
}

static void add_scalar(const struct jv *v, struct buf *out)
{
    char *text;

    if (jv_type(v) == JV_TEXT) {
        buf_adds(out, jv_text(v));
    } else if (jv_type(v) == JV_REAL) {
        number_print(jv_number(v), out);
    } else {
        text = jv_print(v);
        buf_adds(out, text);
        free(text);
    }
}

static void add_row(struct json *j, const struct jv *v, int line)
{
    char *where = xasprintf("%s:%d", j->name, line);
    struct buf value = BUF_INIT;

    if (jv_type(v) == JV_LIST) {
        for (size_t i = 0; i < jv_count(v); i++) {
            buf_adds(&value, i ? ", " : "");
            add_scalar(jv_item(v, i), &value);
        }
        pass_keys(j, v);
    } else {
        add_scalar(v, &value);
    }
    if (rows_find(j->rows, buf_str(&j->path)))
        errors_add(j->errors, "%s: %s is set twice", where, buf_str(&j->path));
    else
        settings_rows_add(j->rows, buf_str(&j->path), buf_str(&value), where);
    buf_clear(&value);
    free(where);
}

static void walk(struct json *j, const struct jv *object)
{
    const struct jv *v;
    const char *key;
    void *at = NULL;

    while ((key = jv_next(object, &at, &v))) {
        size_t before = j->path.len;
        int line;

        next_key(j);
        line = j->line;
        if (!path_is_valid(key)) {
            errors_add(j->errors, "%s:%d: '%.60s' is not a setting's name", j->name, line, key);
            pass_keys(j, v);
            continue;
        }
        buf_addf(&j->path, "%s%s", before ? "." : "", key);
        if (jv_type(v) == JV_OBJECT)
            walk(j, v);
        else if (jv_type(v) != JV_NULL)
            add_row(j, v, line);
        j->path.len = before;
        j->path.data[before] = 0;
    }
}

void json_read(struct settings_rows *rows, const char *name, const char *text, size_t len,
               struct errors *errors)
{
    struct json j = {rows, errors, name, text, text + len, 1, BUF_INIT};
    char why[200];
    int line;
    struct jv *root = jv_parse(text, len, &line, why);

    if (!root)
        errors_add(errors, "%s:%d: not valid JSON: %s", name, line, why);
    else if (jv_type(root) == JV_OBJECT)
        walk(&j, root);
    else
        errors_add(errors, "%s:1: the outermost JSON value must be an object", name);
    buf_clear(&j.path);
    jv_free(root);
}
