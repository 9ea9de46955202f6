/* The registry of layer types and the text that lists them.
 *
 * The registry is the one table of the engine that outlives a rank's model: types are added before
 * a rank starts and never removed, so that ranks sharing a process only read it.
 */
#include "engine/model/list.h"

#include "engine/base/buf.h"
#include "engine/base/parse.h"
#include "engine/model/config.h"
#include "engine/model/model.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TYPES 64

static const struct ds_layer_ops *registry[MAX_TYPES] = {&layer_embedding, &layer_block,
                                                         &layer_norm, &layer_head};
static int registered = 4;

int model_register(const struct ds_layer_ops *ops)
{
    if (ops->abi != DS_LAYER_ABI || registered == MAX_TYPES || model_find(ops->type))
        return -1;
    registry[registered++] = ops;
    return 0;
}

const struct ds_layer_ops *model_find(const char *type)
{
    for (int i = 0; i < registered; i++)
        if (strcmp(registry[i]->type, type) == 0)
            return registry[i];
    return NULL;
}

int model_types(const struct ds_layer_ops *const **list)
{
    *list = registry;
    return registered;
}

static int unknown_type(const char *type, const char *where, struct err *err)
{
    const char *words[MAX_TYPES], *near;
    struct buf all = BUF_INIT;

    for (int i = 0; i < registered; i++) {
        words[i] = registry[i]->type;
        buf_addf(&all, "%s%s", i ? ", " : "", words[i]);
    }
    near = nearest_word(type, words, (size_t)registered);
    if (near)
        err_set(err, ERR_INPUT, "%s: unknown layer type %s in [model] layers; did you mean %s?",
                where, type, near);
    else
        err_set(err, ERR_INPUT, "%s: unknown layer type %s in [model] layers; there are %s", where,
                type, buf_str(&all));
    buf_clear(&all);
    return -1;
}

static void trim_end(char *s)
{
    char *end = s + strlen(s);

    while (end > s && isspace((unsigned char)end[-1]))
        *--end = 0;
}

/* One item, "TYPE" or "TYPE*COUNT", blanks around both allowed. item is changed. */
static int parse_item(char *item, const char *where, const struct ds_layer_ops **ops,
                      int64_t *count, struct err *err)
{
    char *star;

    *count = 1;
    trim_end(item);
    star = strchr(item, '*');
    if (star) {
        char *number = star + 1 + strspn(star + 1, " \t");

        *star = 0;
        if (parse_i64(number, 1, MODEL_MAX_LAYERS, count) < 0)
            return err_set(err, ERR_INPUT,
                           "%s: \"%s\" behind * in [model] layers is not a whole number in 1..%d",
                           where, number, MODEL_MAX_LAYERS);
    }
    trim_end(item);
    if (!*item)
        return err_set(err, ERR_INPUT, "%s: an empty item in [model] layers: write it as in %s",
                       where, "embedding, block*12, norm, head");
    *ops = model_find(item);
    return *ops ? 0 : unknown_type(item, where, err);
}

int list_parse(const char *text, const char *where, const struct ds_layer_ops ***list,
               struct err *err)
{
    const struct ds_layer_ops **out = xcalloc(MODEL_MAX_LAYERS, sizeof(*out)), *ops = NULL;
    const char *p = text;
    int64_t count;
    int n = 0, rc = 0;

    while (rc == 0) {
        size_t len = strcspn(p, ","), blank = strspn(p, " \t");
        char *item = xstrndup(p + (blank < len ? blank : len), blank < len ? len - blank : 0);

        rc = parse_item(item, where, &ops, &count, err);
        free(item);
        if (rc == 0 && n + count > MODEL_MAX_LAYERS)
            rc = err_set(err, ERR_INPUT, "%s: [model] layers has more than %d layers", where,
                         MODEL_MAX_LAYERS);
        for (int64_t i = 0; rc == 0 && i < count; i++)
            out[n++] = ops;
        if (!p[len])
            break;
        p += len + 1;
    }
    if (rc < 0) {
        free(out);
        return -1;
    }
    *list = out;
    return n;
}
