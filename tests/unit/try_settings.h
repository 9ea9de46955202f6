/* What the tests of settings share: a text is read and applied, the first complaint comes back. */
#ifndef TRY_SETTINGS_H
#define TRY_SETTINGS_H

#include "engine/base/settings.h"

#include <string.h>

static struct settings set;
static struct buf warn; /* what was warned about */

/* Reads text into the struct at base that the table describes; "" or the error's text, in a static buffer.
 * Rows whose path begins with skip are left alone. */
static const char *try_settings(const struct setting *table, int n, void *base, const char *skip,
                                const char *text)
{
    static struct err err;
    struct settings_rows rows = {0};
    struct settings *tables[] = {&set};

    if (set.given)
        settings_clear(&set);
    settings_init(&set, table, n, base);
    buf_reset(&warn);
    err = (struct err)ERR_INIT;
    if (settings_read(&rows, "f", text, strlen(text), &err) == 0)
        settings_apply(tables, 1, &rows, skip, &warn, &err);
    settings_rows_clear(&rows);
    return err.text;
}

static int clear_settings(void **state)
{
    (void)state;
    settings_clear(&set);
    buf_clear(&warn);
    return 0;
}

#endif
