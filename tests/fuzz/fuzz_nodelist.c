/* Any bytes as a node list. Laws: refused with a sentence and nothing added, or expand(print(x)) is x
 * but for order. */
#include "hostfile/nodelist.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static int order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct nodelist l = {0}, again = {0};
    struct err err = ERR_INIT;
    struct buf text = BUF_INIT;

    if (n > 4096)
        return 0;
    if (nodelist_expand(&l, (const char *)data, n, 1, &err)) {
        LAW(l.n == 0 && err.code == ERR_INPUT && strncmp(err.text, "column ", 7) == 0);
        nodelist_clear(&l);
        return 0;
    }
    LAW(l.n > 0 && l.n <= NODELIST_MAX);
    if (l.n <= 4096) {
        nodelist_print(l.name, l.n, &text);
        LAW(nodelist_expand(&again, text.data, text.len, 1, &err) == 0);
        LAW(again.n == l.n);
        qsort(l.name, (size_t)l.n, sizeof *l.name, order);
        qsort(again.name, (size_t)l.n, sizeof *l.name, order);
        for (int i = 0; i < l.n; i++)
            LAW(strcmp(l.name[i], again.name[i]) == 0);
    }
    nodelist_clear(&l);
    nodelist_clear(&again);
    buf_clear(&text);
    return 0;
}
