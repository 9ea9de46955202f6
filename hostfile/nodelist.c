/* Node lists: reading and writing "n[01-04,7],rack[0-1]node[0-2]-ib".
 *
 * Reading is strict: every byte is understood or the list is refused with the column. An item is a
 * sequence of literal texts and bracket groups; several groups give a cross product, the last one
 * turning fastest. A range keeps the width its lower bound is written with, as Slurm does.
 *
 * Writing cuts each name into literals and numbers. Names that are equal but for one number are one
 * item with a set there, tried from the last number to the first, so full grids fold into one item.
 * Sets are multisets: duplicates survive the way there and back.
 */
#include "hostfile/nodelist.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_BYTES = 255, /* longest host name (DNS allows 253) */
    DIGITS_MAX = 18,  /* longest number in brackets: fits 64 bits */
    GROUPS_MAX = 8,   /* bracket groups in one item */
};

/* ---- reading ---- */

struct range {
    int64_t lo, hi;
    int width; /* digits of the lower bound as written */
};

/* A literal followed by a group; the last piece of an item may have no group (n == 0). */
struct piece {
    const char *text;
    size_t len;
    struct range *range; /* owned */
    int n, cap;
    int64_t count; /* numbers in the group */
};

struct item {
    struct piece piece[GROUPS_MAX + 1];
    int n;
};

#define UNCLOSED "a bracket that is never closed ('[' needs ']')"

struct scan {
    const char *text;
    size_t len, at;
    size_t open; /* the '[' of the group being read */
    int column;  /* of text[0] */
    struct err *err;
};

static int refuse(const struct scan *s, size_t at, const char *what)
{
    size_t from = at > 20 ? at - 20 : 0;
    char near[48];
    int n = 0;

    for (size_t i = from; i < s->len && i < at + 20; i++)
        near[n++] = isprint((unsigned char)s->text[i]) ? s->text[i] : '?';
    near[n] = 0;
    return err_set(s->err, ERR_INPUT, "column %d: %s in the node list \"%s%s%s\"",
                   s->column + (int)at, what, from ? "..." : "", near,
                   at + 20 < s->len ? "..." : "");
}

static int name_char(char c)
{
    return isalnum((unsigned char)c) || c == '.' || c == '_' || c == '-';
}

/* A run of digits at the scan's place: its value and width. */
static int scan_number(struct scan *s, int64_t *value, int *width)
{
    size_t start = s->at;

    *value = 0;
    while (s->at < s->len && isdigit((unsigned char)s->text[s->at])) {
        if (s->at - start >= DIGITS_MAX)
            return refuse(s, start, "a number of more than 18 digits");
        *value = *value * 10 + (s->text[s->at++] - '0');
    }
    *width = (int)(s->at - start);
    if (*width == 0 && s->at >= s->len)
        return refuse(s, s->open, UNCLOSED);
    if (*width == 0)
        return refuse(s, s->at, "no number where the brackets need one (such as [01-04,7])");
    return 0;
}

static int scan_range(struct scan *s, struct range *r)
{
    size_t start = s->at;
    int width;

    if (scan_number(s, &r->lo, &r->width))
        return -1;
    r->hi = r->lo;
    if (s->at >= s->len || s->text[s->at] != '-')
        return 0;
    s->at++;
    start = s->at;
    if (scan_number(s, &r->hi, &width))
        return -1;
    if (s->text[start] == '0' && width > 1 && width != r->width)
        return refuse(s, start,
                      "a range whose two ends are padded with zeros differently (write "
                      "both with the same number of digits)");
    if (r->hi < r->lo)
        return refuse(s, start, "a range that runs backwards (write the lower number first)");
    return 0;
}

/* The inside of a group; the scan stands behind '['. */
static int scan_group(struct scan *s, struct piece *p)
{
    size_t start = s->at;

    for (;;) {
        struct range r;

        if (scan_range(s, &r))
            return -1;
        if (r.hi - r.lo >= NODELIST_MAX || p->count + (r.hi - r.lo + 1) > NODELIST_MAX)
            return refuse(s, start, "more than 65536 names");
        p->count += r.hi - r.lo + 1;
        ARRAY_GROW(p->range, p->n, p->cap);
        p->range[p->n++] = r;
        if (s->at >= s->len)
            return refuse(s, s->open, UNCLOSED);
        if (s->text[s->at] == ']') {
            s->at++;
            return 0;
        }
        if (s->text[s->at] != ',')
            return refuse(s, s->at,
                          "a character that does not belong in brackets (numbers, ranges "
                          "a-b and commas do)");
        s->at++;
    }
}

static void item_clear(struct item *it)
{
    for (int i = 0; i < it->n; i++)
        free(it->piece[i].range);
    it->n = 0;
}

static int scan_literal(struct scan *s, struct piece *p)
{
    size_t start = s->at;

    while (s->at < s->len && name_char(s->text[s->at]))
        s->at++;
    p->text = s->text + start;
    p->len = s->at - start;
    if (s->at >= s->len || s->text[s->at] == ',' || s->text[s->at] == '[')
        return 0;
    if (s->text[s->at] == ']')
        return refuse(s, s->at, "a ']' without a '[' before it");
    if (isspace((unsigned char)s->text[s->at]))
        return refuse(s, s->at, "a blank (separate names by commas alone)");
    return refuse(s, s->at,
                  "a character that no host name has (letters, digits, '.', '_' and '-' "
                  "are allowed)");
}

static int scan_item(struct scan *s, struct item *it)
{
    size_t start = s->at;
    int64_t total = 1;

    for (;;) {
        struct piece *p = &it->piece[it->n];

        *p = (struct piece){0};
        if (scan_literal(s, p))
            return -1;
        it->n++;
        if (s->at >= s->len || s->text[s->at] == ',')
            break;
        if (it->n > GROUPS_MAX)
            return refuse(s, s->at, "more than 8 brackets in one name");
        s->open = s->at++;
        if (scan_group(s, p))
            return -1;
        total *= p->count;
        if (total > NODELIST_MAX)
            return refuse(s, start, "more than 65536 names");
    }
    if (s->at == start)
        return refuse(s, start, "an empty name (one comma too many)");
    if (s->text[start] == '-')
        return refuse(s, start, "a name that begins with '-'");
    return 0;
}

static int64_t item_count(const struct item *it)
{
    int64_t total = 1;

    for (int i = 0; i < it->n; i++)
        if (it->piece[i].n)
            total *= it->piece[i].count;
    return total;
}

/* Number k of a group: value and width. */
static int64_t group_number(const struct piece *p, int64_t k, int *width)
{
    int i = 0;

    while (k > p->range[i].hi - p->range[i].lo) {
        k -= p->range[i].hi - p->range[i].lo + 1;
        i++;
    }
    *width = p->range[i].width;
    return p->range[i].lo + k;
}

/* Name number k of an item's cross product into out[NAME_BYTES + 1]; -1 when it is too long. */
static int item_name(const struct item *it, int64_t k, char *out)
{
    int64_t digit[GROUPS_MAX + 1] = {0};
    size_t len = 0;

    for (int i = it->n - 1; i >= 0; i--)
        if (it->piece[i].n) {
            digit[i] = k % it->piece[i].count;
            k /= it->piece[i].count;
        }
    for (int i = 0; i < it->n; i++) {
        const struct piece *p = &it->piece[i];
        int width, n = 0;

        if (len + p->len > NAME_BYTES)
            return -1;
        memcpy(out + len, p->text, p->len);
        len += p->len;
        if (p->n) {
            int64_t v = group_number(p, digit[i], &width);

            n = snprintf(out + len, NAME_BYTES + 1 - len, "%0*lld", width, (long long)v);
        }
        if (len + (size_t)n > NAME_BYTES)
            return -1;
        len += (size_t)n;
    }
    out[len] = 0;
    return 0;
}

static void nodelist_cut(struct nodelist *l, int n)
{
    while (l->n > n)
        free(l->name[--l->n]);
}

static int expand_item(struct nodelist *l, int had, struct scan *s, struct item *it)
{
    size_t start = s->at;
    int64_t count;
    char name[NAME_BYTES + 1];

    if (scan_item(s, it))
        return -1;
    count = item_count(it);
    if (l->n - had + count > NODELIST_MAX)
        return refuse(s, start, "more than 65536 names");
    for (int64_t k = 0; k < count; k++) {
        if (item_name(it, k, name))
            return refuse(s, start, "a name of more than 255 bytes");
        ARRAY_GROW(l->name, l->n, l->cap);
        l->name[l->n++] = xstrdup(name);
    }
    return 0;
}

int nodelist_expand(struct nodelist *l, const char *text, size_t len, int column, struct err *err)
{
    struct scan s = {.text = text, .len = len, .column = column, .err = err};
    int had = l->n;

    for (;;) {
        struct item it = {0};
        int rc = expand_item(l, had, &s, &it);

        item_clear(&it);
        if (rc) {
            nodelist_cut(l, had);
            return -1;
        }
        if (s.at >= len)
            return 0;
        s.at++; /* the comma */
    }
}

void nodelist_clear(struct nodelist *l)
{
    nodelist_cut(l, 0);
    free(l->name);
    *l = (struct nodelist){0};
}

/* ---- writing ---- */

enum { NUMBERS_MAX = 4 }; /* numbers of a name that may fold: its last ones */

struct word {
    const char *s; /* into the name */
    int len;
};

/* Multiset of digit strings that stand at one place. */
struct set {
    struct word *w; /* owned */
    int n, cap;
};

/* text[0] set[0] text[1] set[1] ... text[n] */
struct fold {
    struct word text[NUMBERS_MAX + 1];
    struct set set[NUMBERS_MAX];
    int n;
    int first; /* order of first appearance */
    int gone;  /* merged into another */
};

/* Cuts a name at its last numbers. Digits beyond 18, or beyond the fourth number from the end, are
 * literal text, and so is an address in brackets. */
static void fold_init(struct fold *f, const char *name, int first)
{
    struct word num[NUMBERS_MAX];
    int end = (int)strlen(name), n = 0;

    for (int i = name[0] == '[' ? 0 : end; i > 0 && n < NUMBERS_MAX;) {
        int j = i;

        while (j > 0 && isdigit((unsigned char)name[j - 1]))
            j--;
        if (j < i && i - j <= DIGITS_MAX)
            num[n++] = (struct word){name + j, i - j};
        i = j < i ? j : i - 1;
    }
    *f = (struct fold){.n = n, .first = first};
    for (int k = 0; k < n; k++) {
        const struct word *w = &num[n - 1 - k];
        const char *from = k ? num[n - k].s + num[n - k].len : name;

        f->text[k] = (struct word){from, (int)(w->s - from)};
        f->set[k].cap = f->set[k].n = 1;
        f->set[k].w = xmalloc(sizeof *f->set[k].w);
        f->set[k].w[0] = *w;
    }
    f->text[n] = (struct word){n ? num[0].s + num[0].len : name, 0};
    f->text[n].len = (int)(name + end - f->text[n].s);
}

/* By length, then text: numbers of one width in order, and 9 before 10. */
static int word_cmp(const void *a, const void *b)
{
    const struct word *x = a, *y = b;

    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return memcmp(x->s, y->s, (size_t)x->len);
}

static int set_cmp(const struct set *x, const struct set *y)
{
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    for (int i = 0; i < x->n; i++) {
        int c = word_cmp(&x->w[i], &y->w[i]);

        if (c)
            return c;
    }
    return 0;
}

/* Equal but for the number at place skip counted from the end? Orders folds by everything else. */
static int fold_cmp(const struct fold *x, const struct fold *y, int skip)
{
    int c;

    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    for (int i = 0; i <= x->n; i++)
        if ((c = word_cmp(&x->text[i], &y->text[i])))
            return c;
    for (int i = 0; i < x->n; i++)
        if (i != x->n - 1 - skip && (c = set_cmp(&x->set[i], &y->set[i])))
            return c;
    return 0;
}

struct sort {
    struct fold *f;
    int skip;
};

static int sort_cmp(const void *a, const void *b, void *arg)
{
    const struct sort *s = arg;
    int i = *(const int *)a, j = *(const int *)b;
    int c = fold_cmp(&s->f[i], &s->f[j], s->skip);

    return c ? c : s->f[i].first - s->f[j].first;
}

static void set_merge(struct set *into, struct set *from)
{
    for (int i = 0; i < from->n; i++) {
        ARRAY_GROW(into->w, into->n, into->cap);
        into->w[into->n++] = from->w[i];
    }
}

/* Merges the folds that differ only in the number at place skip from the end. */
static void fold_pass(struct fold *f, int n, int *order, int skip)
{
    struct sort s = {f, skip};
    int live = 0;

    for (int i = 0; i < n; i++)
        if (!f[i].gone && f[i].n > skip)
            order[live++] = i;
    qsort_r(order, (size_t)live, sizeof *order, sort_cmp, &s);
    for (int i = 0; i < live;) {
        struct fold *head = &f[order[i]];
        struct set *set = &head->set[head->n - 1 - skip];
        int j = i + 1;

        for (; j < live && fold_cmp(head, &f[order[j]], skip) == 0; j++) {
            set_merge(set, &f[order[j]].set[head->n - 1 - skip]);
            f[order[j]].gone = 1;
        }
        if (j > i + 1)
            qsort(set->w, (size_t)set->n, sizeof *set->w, word_cmp);
        i = j;
    }
}

static int64_t word_value(const struct word *w)
{
    int64_t v = 0;

    for (int i = 0; i < w->len; i++)
        v = v * 10 + (w->s[i] - '0');
    return v;
}

/* Does w continue the range that began at lo with hi as its last number so far? */
static int word_follows(const struct word *lo, int64_t hi, const struct word *w)
{
    char next[32];
    int n = snprintf(next, sizeof next, "%0*lld", lo->len, (long long)(hi + 1));

    return n == w->len && memcmp(next, w->s, (size_t)n) == 0;
}

static void set_print(const struct set *set, struct buf *out)
{
    if (set->n > 1)
        buf_addc(out, '[');
    for (int i = 0; i < set->n;) {
        const struct word *lo = &set->w[i];
        int64_t hi = word_value(lo);
        int j = i + 1;

        while (j < set->n && word_follows(lo, hi, &set->w[j])) {
            hi++;
            j++;
        }
        if (i)
            buf_addc(out, ',');
        buf_add(out, lo->s, (size_t)lo->len);
        if (j > i + 1) {
            buf_addc(out, '-');
            buf_add(out, set->w[j - 1].s, (size_t)set->w[j - 1].len);
        }
        i = j;
    }
    if (set->n > 1)
        buf_addc(out, ']');
}

void nodelist_print(char *const *names, int n, struct buf *out)
{
    struct fold *f = xcalloc((size_t)n + 1, sizeof *f);
    int *order = xcalloc((size_t)n + 1, sizeof *order);
    const char *comma = "";

    for (int i = 0; i < n; i++)
        fold_init(&f[i], names[i], i);
    for (int skip = 0; skip < NUMBERS_MAX; skip++)
        fold_pass(f, n, order, skip);
    for (int i = 0; i < n; i++) {
        if (!f[i].gone) {
            buf_adds(out, comma);
            comma = ",";
            for (int k = 0; k <= f[i].n; k++) {
                buf_add(out, f[i].text[k].s, (size_t)f[i].text[k].len);
                if (k < f[i].n)
                    set_print(&f[i].set[k], out);
            }
        }
        for (int k = 0; k < f[i].n; k++)
            free(f[i].set[k].w);
    }
    free(order);
    free(f);
}
