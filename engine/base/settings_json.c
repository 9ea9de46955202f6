/* JSON text to rows, through jansson: nested objects become paths, arrays lists, null is not given.
 *
 * jansson does not keep where a key stood. It keeps the order of keys, so a second walk over the text, known
 * to be valid by then, finds the line of each key as the tree is visited. */
#include "engine/base/settings_impl.h"

#include <jansson.h>
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
static void pass_keys(struct json *j, const json_t *v)
{
    const char *key;
    json_t *item;
    size_t i;

    if (json_is_object(v)) {
        json_object_foreach((json_t *)v, key, item) {
            next_key(j);
            pass_keys(j, item);
        }
    } else if (json_is_array(v)) {
        json_array_foreach(v, i, item)
            pass_keys(j, item);
    }
}

static void add_scalar(const json_t *v, struct buf *out)
{
    if (json_is_string(v)) {
        buf_adds(out, json_string_value(v));
    } else if (json_is_integer(v)) {
        buf_addf(out, "%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v)) {
        number_print(json_real_value(v), out);
    } else if (json_is_boolean(v)) {
        buf_adds(out, json_is_true(v) ? "true" : "false");
    } else {
        char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);

        buf_adds(out, text ? text : "");
        free(text);
    }
}

static void add_row(struct json *j, const json_t *v, int line)
{
    char *where = xasprintf("%s:%d", j->name, line);
    struct buf value = BUF_INIT;
    const json_t *item;
    size_t i;

    if (json_is_array(v)) {
        json_array_foreach(v, i, item) {
            if (i)
                buf_adds(&value, ", ");
            add_scalar(item, &value);
        }
        pass_keys(j, v);
    } else {
        add_scalar(v, &value);
    }
    if (rows_find(j->rows, buf_str(&j->path))) /* "a.b" beside {"a": {"b": ..}} */
        errors_add(j->errors, "%s: %s is set twice", where, buf_str(&j->path));
    else
        settings_rows_add(j->rows, buf_str(&j->path), buf_str(&value), where);
    buf_clear(&value);
    free(where);
}

static void walk(struct json *j, const json_t *object)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)object, key, v) {
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
        if (json_is_object(v))
            walk(j, v);
        else if (!json_is_null(v))
            add_row(j, v, line);
        j->path.len = before;
        j->path.data[before] = 0;
    }
}

void json_read(struct settings_rows *rows, const char *name, const char *text, size_t len, struct errors *errors)
{
    struct json j = {rows, errors, name, text, text + len, 1, BUF_INIT};
    json_error_t why;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);

    if (!root) {
        errors_add(errors, "%s:%d: not valid JSON: %s", name, why.line > 0 ? why.line : 1, why.text);
        return;
    }
    if (json_is_object(root))
        walk(&j, root);
    else
        errors_add(errors, "%s:1: the outermost JSON value must be an object", name);
    buf_clear(&j.path);
    json_decref(root);
}
