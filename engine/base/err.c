/* Errors that travel up: see err.h. */
#include "engine/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void mark_cut(char *text, int wanted)
{
    if (wanted >= ERR_TEXT_BYTES)
        memcpy(text + ERR_TEXT_BYTES - 4, "...", 4);
}

int err_vset(struct err *e, enum err_code code, const char *fmt, va_list ap)
{
    int saved = errno;

    if (e) {
        e->code = code;
        mark_cut(e->text, vsnprintf(e->text, sizeof e->text, fmt, ap));
    }
    errno = saved;
    return -1;
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    err_vset(e, code, fmt, ap);
    va_end(ap);
    return -1;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
    int saved = errno;
    char old[ERR_TEXT_BYTES], context[256];
    va_list ap;

    if (!e)
        return -1;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    memcpy(old, e->text, sizeof old);
    mark_cut(e->text, snprintf(e->text, sizeof e->text, "%s: %s", context, old));
    errno = saved;
    return -1;
}

const char *err_unprefix(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);

    return !strncmp(text, prefix, n) && !strncmp(text + n, ": ", 2) ? text + n + 2 : text;
}

int err_exit_code(const struct err *e)
{
    return e->code == ERR_OK ? 0 : err_class(e) == ERR_CLASS_INPUT ? 2 : 1;
}
