/* Node lists: "n[01-04,7],rack[0-1]node[0-2]-ib". Strict: what is not understood is an error with
 * its column, never a host of that name. Padding is kept as written. */
#ifndef DS_NODELIST_H
#define DS_NODELIST_H

#include "engine/base/buf.h"
#include "engine/base/err.h"

struct nodelist {
    char **name; /* owned, in written order, duplicates kept */
    int n, cap;
};

#define NODELIST_MAX 65536 /* names one list may expand to */

/* Appends the expansion of text[0..len). column: where text begins in its line (1-based), for
 * errors. */
int nodelist_expand(struct nodelist *, const char *text, size_t len, int column, struct err *);
void nodelist_clear(struct nodelist *);

/* The shortest bracket form, order of first appearance of each prefix; expand(print(x)) == x up to
 * order within one prefix. */
void nodelist_print(char *const *names, int n, struct buf *out);

#endif
