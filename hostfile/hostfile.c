/* The hostfile's grammar, as ds-hostfile(5) describes it.
 *
 * One line is one HOST and its words. A line with an error adds no host, and parsing goes on, so
 * that all errors of a file come in one go; the result is handed out only when there was none.
 * Pure: text in, hosts or sentences out (hostfile_read is in source.c).
 */
#include "hostfile/hostfile.h"

#include "engine/base/hash.h"
#include "engine/base/parse.h"
#include "hostfile/ids.h"
#include "hostfile/nodelist.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    NUMBER_MAX = 65536,
    TOTAL_MAX = 1 << 20, /* slots of all hosts together */
    NEAR_BYTES = 40,     /* of the user's text in a sentence */
};

/* Where each name was first seen, open addressing over keys. */
struct seen {
    char **key; /* [cap] NULL: free; owned */
    int *line;
    int n, cap;
};

struct parser {
    struct hosts hosts;
    const char *name;
    int line;
    const char *start; /* of the line's text: column 1 */
    struct buf errors;
    int nerrors, dropped;
    struct seen seen;
    int64_t total;
};

/* What one line says. */
struct entry {
    const char *spec;
    char *user;
    int ipv6;
    struct nodelist names;
    int64_t slots, max_slots, port; /* -1: not given */
    int open;                       /* slots were not */
    struct ids devices;
    int has_devices;
};

/* A token of the line: [s, end). */
struct token {
    const char *s, *end;
};

/* Adds "FILE:LINE:COLUMN: TEXT". Lines that no longer fit into an error are only counted. */
__attribute__((format(printf, 3, 4))) static int complain(struct parser *p, int column,
                                                          const char *fmt, ...)
{
    struct buf b = BUF_INIT;
    va_list ap;

    buf_addf(&b, "%s:%d:%d: ", p->name, p->line, column);
    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    if (p->nerrors && (p->dropped || p->errors.len + b.len + 32 > ERR_TEXT_BYTES)) {
        p->dropped++;
    } else {
        buf_addf(&p->errors, "%s%s", p->nerrors ? "\n" : "", b.data);
    }
    p->nerrors++;
    buf_clear(&b);
    return -1;
}

static int column_of(const struct parser *p, const char *at)
{
    return (int)(at - p->start) + 1;
}

/* The token's text, bounded, for a sentence; out[NEAR_BYTES + 4]. */
static const char *near_text(struct token t, char *out)
{
    int n = t.end - t.s > NEAR_BYTES ? NEAR_BYTES : (int)(t.end - t.s);

    for (int i = 0; i < n; i++)
        out[i] = isprint((unsigned char)t.s[i]) ? t.s[i] : '?';
    strcpy(out + n, t.end - t.s > NEAR_BYTES ? "..." : "");
    return out;
}

/* ---- names seen ---- */

/* One spelling for names that mean one host: lower case, addresses in their shortest form. Owned.
 */
static char *seen_key(const char *name)
{
    struct in6_addr a;
    char text[INET6_ADDRSTRLEN];
    char *key;

    if (inet_pton(AF_INET6, name, &a) == 1 && inet_ntop(AF_INET6, &a, text, sizeof text))
        return xstrdup(text);
    key = xstrdup(name);
    for (char *c = key; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return key;
}

static int seen_place(const struct seen *s, const char *key)
{
    int i = (int)(hash64(key, strlen(key)) & (uint64_t)(s->cap - 1));

    while (s->key[i] && strcmp(s->key[i], key) != 0)
        i = (i + 1) & (s->cap - 1);
    return i;
}

static void seen_grow(struct seen *s)
{
    struct seen big = {.n = s->n, .cap = s->cap ? s->cap * 2 : 64};

    big.key = xcalloc((size_t)big.cap, sizeof *big.key);
    big.line = xcalloc((size_t)big.cap, sizeof *big.line);
    for (int i = 0; i < s->cap; i++)
        if (s->key[i]) {
            int j = seen_place(&big, s->key[i]);

            big.key[j] = s->key[i];
            big.line[j] = s->line[i];
        }
    free(s->key);
    free(s->line);
    *s = big;
}

/* The line where name was seen before, or 0 and it is remembered. */
static int seen_before(struct seen *s, const char *name, int line)
{
    char *key = seen_key(name);
    int i;

    if (s->n * 2 >= s->cap)
        seen_grow(s);
    i = seen_place(s, key);
    if (s->key[i]) {
        free(key);
        return s->line[i];
    }
    s->key[i] = key;
    s->line[i] = line;
    s->n++;
    return 0;
}

static void seen_clear(struct seen *s)
{
    for (int i = 0; i < s->cap; i++)
        free(s->key[i]);
    free(s->key);
    free(s->line);
}

/* ---- the first word: [user@]names[:slots] ---- */

static int read_number(struct parser *p, struct token t, const char *what, int64_t lo, int64_t hi,
                       int64_t *out)
{
    char near[NEAR_BYTES + 4], digits[24];
    size_t n = (size_t)(t.end - t.s);

    if (n < sizeof digits) {
        memcpy(digits, t.s, n);
        digits[n] = 0;
        if (strspn(digits, "0123456789") == n && parse_i64(digits, lo, hi, out) == 0)
            return 0;
    }
    return complain(p, column_of(p, t.s), "%s is \"%s\"; write a whole number from %lld to %lld",
                    what, near_text(t, near), (long long)lo, (long long)hi);
}

static int read_user(struct parser *p, struct entry *e, struct token *t)
{
    const char *at = memchr(t->s, '@', (size_t)(t->end - t->s));
    char near[NEAR_BYTES + 4];

    if (!at)
        return 0;
    for (const char *c = t->s; c < at; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-+", *c))
            return complain(p, column_of(p, c), "\"%s\" is no user name; write user@host",
                            near_text((struct token){t->s, at}, near));
    if (at == t->s || *t->s == '-')
        return complain(
            p, column_of(p, t->s),
            "there is no user name in front of '@'; write user@host, or the host alone");
    e->user = xstrndup(t->s, (size_t)(at - t->s));
    t->s = at + 1;
    return 0;
}

static int is_ipv6(const char *s, size_t n)
{
    char text[INET6_ADDRSTRLEN + 1];
    struct in6_addr a;
    const char *zone = memchr(s, '%', n);
    size_t len = zone ? (size_t)(zone - s) : n;

    if (len >= sizeof text || (zone && zone + 1 == s + n))
        return 0;
    for (const char *c = zone ? zone + 1 : s + n; c < s + n; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            return 0;
    memcpy(text, s, len);
    text[len] = 0;
    return inet_pton(AF_INET6, text, &a) == 1;
}

/* "[address]" in front of t; t is moved behind it. 1: it was one, 0: it is no such thing, -1: bad.
 */
static int read_ipv6(struct parser *p, struct entry *e, struct token *t)
{
    const char *close = memchr(t->s, ']', (size_t)(t->end - t->s));
    const char *end = close ? close : t->end;
    char near[NEAR_BYTES + 4];

    if (t->s >= t->end || *t->s != '[' || !memchr(t->s, ':', (size_t)(end - t->s)))
        return 0;
    if (!close || !is_ipv6(t->s + 1, (size_t)(close - t->s) - 1))
        return complain(p, column_of(p, t->s),
                        "\"%s\" is no IPv6 address; write it in brackets, such as [fe80::1%%eth0]",
                        near_text((struct token){t->s, close ? close + 1 : t->end}, near));
    e->ipv6 = 1;
    ARRAY_GROW(e->names.name, e->names.n, e->names.cap);
    e->names.name[e->names.n++] = xstrndup(t->s + 1, (size_t)(close - t->s) - 1);
    t->s = close + 1;
    return 1;
}

/* The names up to ':' or the token's end; t is moved behind them. */
static int read_names(struct parser *p, struct entry *e, struct token *t)
{
    const char *colon = memchr(t->s, ':', (size_t)(t->end - t->s));
    const char *end = colon ? colon : t->end;
    struct err err = ERR_INIT;
    int column, skip = 0;
    char near[NEAR_BYTES + 4];

    if (is_ipv6(t->s, (size_t)(t->end - t->s)))
        return complain(p, column_of(p, t->s), "an IPv6 address stands in brackets; write [%s]",
                        near_text(*t, near));
    if (nodelist_expand(&e->names, t->s, (size_t)(end - t->s), column_of(p, t->s), &err)) {
        if (sscanf(err.text, "column %d: %n", &column, &skip) != 1 || !skip)
            column = column_of(p, t->s);
        return complain(p, column, "%s", err.text + skip);
    }
    t->s = end;
    return 0;
}

static int read_spec(struct parser *p, struct entry *e, struct token t)
{
    char near[NEAR_BYTES + 4];
    int rc;

    e->spec = t.s;
    if (read_user(p, e, &t))
        return -1;
    rc = read_ipv6(p, e, &t);
    if (rc < 0 || (rc == 0 && read_names(p, e, &t)))
        return -1;
    if (t.s == t.end)
        return 0;
    if (*t.s != ':')
        return complain(p, column_of(p, t.s),
                        "\"%s\" behind the address; write [ADDRESS] or [ADDRESS]:SLOTS",
                        near_text(t, near));
    t.s++;
    return read_number(p, t, "the number of slots behind ':'", 1, NUMBER_MAX, &e->slots);
}

/* ---- the other words: key=value ---- */

static const char *const keys[] = {"slots", "max_slots", "port", "devices"};
enum { KEY_SLOTS, KEY_MAX_SLOTS, KEY_PORT, KEY_DEVICES, NKEYS };

static int find_key(const char *s, size_t n)
{
    if (n == 9 && memcmp(s, "max-slots", 9) == 0)
        return KEY_MAX_SLOTS;
    for (int k = 0; k < NKEYS; k++)
        if (strlen(keys[k]) == n && memcmp(keys[k], s, n) == 0)
            return k;
    return -1;
}

static int unknown_word(struct parser *p, struct token t)
{
    const char *eq = memchr(t.s, '=', (size_t)(t.end - t.s));
    char near[NEAR_BYTES + 4];
    char *word = xstrndup(t.s, (size_t)((eq ? eq : t.end) - t.s));
    const char *best = nearest_word(word, keys, NKEYS);
    int rc;

    near_text(t, near);
    if (best)
        rc = complain(p, column_of(p, t.s), "unknown word \"%s\"; did you mean %s=?", near, best);
    else
        rc = complain(p, column_of(p, t.s),
                      "unknown word \"%s\"; behind a host come slots=, max_slots=, port= and "
                      "devices=",
                      near);
    free(word);
    return rc;
}

static int read_devices(struct parser *p, struct entry *e, struct token t)
{
    const char *what;
    size_t at;

    e->has_devices = 1;
    if (ids_parse(&e->devices, t.s, (size_t)(t.end - t.s), &at, &what) == 0)
        return 0;
    return complain(p, column_of(p, t.s + at),
                    "devices= has %s; write device ids such as "
                    "devices=4,5,6,7",
                    what);
}

static int read_word(struct parser *p, struct entry *e, struct token t)
{
    const char *eq = memchr(t.s, '=', (size_t)(t.end - t.s));
    int key = eq ? find_key(t.s, (size_t)(eq - t.s)) : -1;
    struct token value = {eq ? eq + 1 : t.end, t.end};
    int64_t *field[NKEYS] = {&e->slots, &e->max_slots, &e->port, NULL};

    if (key < 0)
        return unknown_word(p, t);
    if (key == KEY_DEVICES ? e->has_devices : *field[key] != -1)
        return complain(p, column_of(p, t.s), "%s given twice; keep one of the two",
                        key == KEY_SLOTS ? "the number of slots is" : keys[key]);
    if (key == KEY_DEVICES)
        return read_devices(p, e, value);
    return read_number(p, value, keys[key], 1, key == KEY_PORT ? 65535 : NUMBER_MAX, field[key]);
}

/* ---- lines ---- */

static int next_token(const char **at, const char *end, struct token *t)
{
    while (*at < end && (**at == ' ' || **at == '\t'))
        ++*at;
    t->s = *at;
    while (*at < end && **at != ' ' && **at != '\t')
        ++*at;
    t->end = *at;
    return t->end > t->s;
}

/* "slots = 4", "slots =4" and "slots= 4": one error for all the pieces. 1 when it was that. */
static int blank_around_equals(struct parser *p, struct token t, const char **at, const char *end)
{
    const char *look = *at;
    const char *eq = memchr(t.s, '=', (size_t)(t.end - t.s));
    struct token next;
    int key = find_key(t.s, (size_t)((eq ? eq : t.end) - t.s));

    if (key < 0 || (eq && eq + 1 != t.end) || !next_token(&look, end, &next))
        return 0;
    if (!eq && *next.s != '=')
        return 0;
    *at = look;
    if (!eq && next.end == next.s + 1 && next_token(&look, end, &next))
        *at = look;
    complain(p, column_of(p, t.end), "a blank beside '='; write %s=N without blanks", keys[key]);
    return 1;
}

static void entry_clear(struct entry *e)
{
    free(e->user);
    nodelist_clear(&e->names);
    ids_clear(&e->devices);
}

/* Checks that concern several words of the line. Fills in slots. */
static int entry_check(struct parser *p, struct entry *e)
{
    int column = column_of(p, e->spec);

    if (e->has_devices && e->slots == -1)
        e->slots = e->devices.n;
    e->open = e->slots == -1;
    if (e->slots == -1)
        e->slots = 1;
    if (e->has_devices && e->devices.n != e->slots)
        return complain(p, column, "%d device%s for %lld slot%s; give one device per slot",
                        e->devices.n, e->devices.n == 1 ? "" : "s", (long long)e->slots,
                        e->slots == 1 ? "" : "s");
    if (e->max_slots != -1 && e->max_slots < e->slots)
        return complain(p, column,
                        "max_slots=%lld is below the %lld slots; raise it or leave it out",
                        (long long)e->max_slots, (long long)e->slots);
    if (p->hosts.n + e->names.n > NODELIST_MAX)
        return complain(p, column, "more than %d hosts; split the job or the file", NODELIST_MAX);
    if (p->total + e->names.n * e->slots > TOTAL_MAX)
        return complain(p, column, "more than %d slots in all; lower the numbers of slots",
                        TOTAL_MAX);
    return 0;
}

static void add_host(struct parser *p, const struct entry *e, const char *name)
{
    struct host *h;

    ARRAY_GROW(p->hosts.host, p->hosts.n, p->hosts.cap);
    h = &p->hosts.host[p->hosts.n++];
    *h = (struct host){.name = xstrdup(name),
                       .user = e->user ? xstrdup(e->user) : NULL,
                       .port = e->port == -1 ? 0 : (int)e->port,
                       .nslots = (int)e->slots,
                       .open = e->open,
                       .max_slots = e->max_slots == -1 ? 0 : (int)e->max_slots,
                       .line = p->line};
    h->slot = xmalloc((size_t)h->nslots * sizeof *h->slot);
    h->device = xmalloc((size_t)h->nslots * sizeof *h->device);
    for (int i = 0; i < h->nslots; i++) {
        h->slot[i] = i;
        h->device[i] = e->has_devices ? e->devices.id[i] : i;
    }
    p->total += h->nslots;
}

static void add_hosts(struct parser *p, const struct entry *e)
{
    for (int i = 0; i < e->names.n; i++) {
        int before = seen_before(&p->seen, e->names.name[i], p->line);

        if (before) {
            complain(p, column_of(p, e->spec),
                     "host \"%.64s\" was given on line %d already; give each host once, with all "
                     "its slots",
                     e->names.name[i], before);
            return;
        }
        add_host(p, e, e->names.name[i]);
    }
}

/* Bytes that no text has; 0 when there is none. */
static int odd_bytes(struct parser *p, const char *s, const char *end)
{
    for (; s < end; s++) {
        unsigned char c = (unsigned char)*s;

        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return complain(p, column_of(p, s),
                            "a byte 0x%02x, which no text has; is this a "
                            "hostfile? Remove the byte",
                            c);
    }
    return 0;
}

static void parse_line(struct parser *p, const char *s, const char *end)
{
    const char *hash = memchr(s, '#', (size_t)(end - s));
    struct entry e = {.slots = -1, .max_slots = -1, .port = -1};
    int errors = p->nerrors;
    const char *at = s;
    struct token t;

    p->start = s;
    if (end > s && end[-1] == '\r')
        end--;
    if (odd_bytes(p, s, end))
        return;
    if (hash && hash < end)
        end = hash;
    if (!next_token(&at, end, &t))
        return;
    read_spec(p, &e, t);
    while (next_token(&at, end, &t))
        if (!blank_around_equals(p, t, &at, end))
            read_word(p, &e, t);
    if (p->nerrors == errors && entry_check(p, &e) == 0)
        add_hosts(p, &e);
    entry_clear(&e);
}

static int finish(struct parser *p, struct hosts *out, struct err *err)
{
    int rc = 0;

    if (p->nerrors) {
        if (p->dropped)
            buf_addf(&p->errors, "\n... and %d more", p->dropped);
        rc = err_set(err, ERR_INPUT, "%s", p->errors.data);
    } else if (!p->hosts.n) {
        rc = err_set(err, ERR_INPUT,
                     "%s: there is no host in it; write one host a line, such as: node01 slots=8",
                     p->name);
    }
    if (rc) {
        hosts_clear(&p->hosts);
    } else {
        p->hosts.source = xstrdup(p->name);
        *out = p->hosts;
    }
    seen_clear(&p->seen);
    buf_clear(&p->errors);
    return rc;
}

int hostfile_parse(struct hosts *hosts, const char *name, const char *text, size_t len,
                   struct err *err)
{
    struct parser p = {.name = name};
    const char *end = text + len;

    if (len >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0))
        return err_set(err, ERR_INPUT, "%s: the text is UTF-16; save it as UTF-8", name);
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3;
    while (text < end) {
        const char *nl = memchr(text, '\n', (size_t)(end - text));

        p.line++;
        parse_line(&p, text, nl ? nl : end);
        text = nl ? nl + 1 : end;
    }
    return finish(&p, hosts, err);
}
