/* Lists of slot and device numbers: see ids.h. */
#include "hostfile/ids.h"

#include "engine/base/buf.h"

#include <stdlib.h>

static int read_id(const char *text, size_t len, size_t *i, int *out, const char **what)
{
    size_t start = *i;
    int v = 0;

    while (*i < len && text[*i] >= '0' && text[*i] <= '9') {
        v = v * 10 + (text[(*i)++] - '0');
        if (v >= IDS_MAX) {
            *i = start;
            *what = "a number past 65535";
            return -1;
        }
    }
    if (*i == start) {
        *what = "no number where one is needed (write numbers and ranges, such as 0-3,5)";
        return -1;
    }
    *out = v;
    return 0;
}

static int add_range(struct ids *ids, unsigned char *seen, int lo, int hi)
{
    for (int v = lo; v <= hi; v++) {
        if (seen[v])
            return -1;
        seen[v] = 1;
        ARRAY_GROW(ids->id, ids->n, ids->cap);
        ids->id[ids->n++] = v;
    }
    return 0;
}

static int parse_items(struct ids *ids, unsigned char *seen, const char *text, size_t len,
                       size_t *at, const char **what)
{
    for (size_t i = 0;; i++) {
        size_t start = i;
        int lo, hi;

        *at = i;
        if (read_id(text, len, &i, &lo, what)) {
            *at = i;
            return -1;
        }
        hi = lo;
        if (i < len && text[i] == '-') {
            i++;
            if (read_id(text, len, &i, &hi, what)) {
                *at = i;
                return -1;
            }
        }
        *at = start;
        *what = "a range that runs backwards (write the lower number first)";
        if (hi < lo)
            return -1;
        *what = "a number that is given twice";
        if (add_range(ids, seen, lo, hi))
            return -1;
        if (i >= len)
            return 0;
        if (text[i] != ',') {
            *at = i;
            *what = "a character that is no number (write numbers and ranges, such as 0-3,5)";
            return -1;
        }
    }
}

int ids_parse(struct ids *ids, const char *text, size_t len, size_t *at, const char **what)
{
    unsigned char *seen = xcalloc(IDS_MAX, 1);
    int rc;

    for (int i = 0; i < ids->n; i++)
        seen[ids->id[i]] = 1;
    rc = parse_items(ids, seen, text, len, at, what);
    free(seen);
    return rc;
}

void ids_clear(struct ids *ids)
{
    free(ids->id);
    *ids = (struct ids){0};
}
