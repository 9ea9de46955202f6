/* Any text as .deepspeed_env. Laws: refused with a line's number, or every entry is NAME=VALUE with names as a shell
 * has them, each name once; and what was read, written in single quotes, reads the same. */
#include "engine/base/buf.h"
#include "launcher/exportenv.h"
#include "tests/fuzz/fuzz.h"

#include <ctype.h>
#include <string.h>

static void check_entry(const char *item)
{
    const char *eq = strchr(item, '=');

    LAW(eq && eq > item && !isdigit((unsigned char)*item));
    for (; item < eq; item++)
        LAW(isalnum((unsigned char)*item) || *item == '_');
}

/* NAME='VALUE' with every ' as '\'' . */
static void quote(const char *item, struct buf *out)
{
    const char *p = strchr(item, '=') + 1;

    buf_add(out, item, (size_t)(p - item));
    buf_addc(out, '\'');
    for (; *p; p++) {
        if (*p == '\'')
            buf_adds(out, "'\\'");
        buf_addc(out, *p);
    }
    buf_adds(out, "'\n");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct envlist e = {0}, again = {0};
    struct err err = ERR_INIT;
    struct buf text = BUF_INIT, quoted = BUF_INIT;

    buf_add(&text, data, n);
    if (envlist_parse(&e, "f", buf_str(&text), &err)) {
        LAW(!strncmp(err.text, "f:", 2) && isdigit((unsigned char)err.text[2]));
    } else {
        for (int i = 0; i < e.n; i++) {
            check_entry(e.item[i]);
            quote(e.item[i], &quoted);
            for (int k = 0; k < i; k++)
                LAW(strncmp(e.item[i], e.item[k], strcspn(e.item[i], "=") + 1));
        }
        LAW(!envlist_parse(&again, "f", buf_str(&quoted), &err));
        LAW(again.n == e.n);
        for (int i = 0; i < e.n; i++)
            LAW(!strcmp(again.item[i], e.item[i]));
    }
    envlist_clear(&e);
    envlist_clear(&again);
    buf_clear(&text);
    buf_clear(&quoted);
    return 0;
}
