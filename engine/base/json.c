/* JSON values by jansson: see json.h. A struct jv is a json_t under another name. */
#include "engine/base/json.h"
#include "engine/base/buf.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static const json_t *in(const struct jv *v)
{
    return (const json_t *)v;
}

struct jv *jv_parse(const char *text, size_t n, int *line, char why[200])
{
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);

    if (!root) {
        *line = error.line > 0 ? error.line : 1;
        snprintf(why, 200, "%s", error.text);
    }
    return (struct jv *)root;
}

void jv_free(struct jv *root)
{
    json_decref((json_t *)root);
}

enum jv_type jv_type(const struct jv *v)
{
    static const enum jv_type type[] = {
        [JSON_OBJECT] = JV_OBJECT, [JSON_ARRAY] = JV_LIST, [JSON_STRING] = JV_TEXT,
        [JSON_INTEGER] = JV_INT,   [JSON_REAL] = JV_REAL,  [JSON_TRUE] = JV_BOOL,
        [JSON_FALSE] = JV_BOOL,    [JSON_NULL] = JV_NULL,
    };

    return v ? type[json_typeof(in(v))] : JV_NONE;
}

const struct jv *jv_member(const struct jv *object, const char *key)
{
    return (const struct jv *)json_object_get(in(object), key);
}

size_t jv_count(const struct jv *v)
{
    return jv_type(v) == JV_OBJECT ? json_object_size(in(v)) : json_array_size(in(v));
}

const struct jv *jv_item(const struct jv *list, size_t i)
{
    return (const struct jv *)json_array_get(in(list), i);
}

const char *jv_next(const struct jv *object, void **at, const struct jv **value)
{
    json_t *o = (json_t *)object;

    *at = *at ? json_object_iter_next(o, *at) : json_object_iter(o);
    if (!*at)
        return NULL;
    *value = (const struct jv *)json_object_iter_value(*at);
    return json_object_iter_key(*at);
}

int64_t jv_int(const struct jv *v)
{
    return json_integer_value(in(v));
}

double jv_number(const struct jv *v)
{
    return json_number_value(in(v));
}

const char *jv_text(const struct jv *v)
{
    return json_string_value(in(v));
}

char *jv_print(const struct jv *v)
{
    char *text = v ? json_dumps(in(v), JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    return text ? text : xstrdup("");
}
