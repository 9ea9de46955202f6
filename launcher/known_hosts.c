/* Known host keys in memory: see known_hosts.h.
 *
 * Hashed names can't be looked up: every one costs an HMAC. So the lines that hold the same key form a list, and
 * a key that a server showed is looked for in its list only. A line whose name was found out becomes a plain one
 * and leaves the list: hosts are mostly visited in about the file's order, and then few HMACs are needed even
 * where all hosts have one key.
 *
 * Invariants: every key is one line of a file and stays where it is (keys are allocated singly); the name
 * table maps a lower-case name to a chain of keys in file order. */
#include "launcher/known_hosts.h"

#include "engine/base/hash.h"
#include "engine/base/parse.h"
#include "launcher/digest.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct name {
    char *text;
    struct known_key *key;
    int next; /* in the same bucket, -1 at the end */
};

struct hashed {
    struct hmac_sha1 salt;
    uint8_t digest[SHA1_BYTES];
    struct known_key *key;
    int known; /* its name was found out */
    int next;  /* line with the same key, -1 at the end */
};

struct same_key {
    const struct known_key *key;
    int first, last; /* of hashed, in file order: those not found out are from first on */
    int next;        /* in the same bucket, -1 at the end */
};

struct pattern {
    char *list; /* comma-separated, lower case, with * ? ! */
    struct known_key *key;
};

struct known_hosts {
    struct known_key **key;
    int nkeys, cap_keys;
    char **file;
    int nfiles, cap_files;
    struct name *name;
    int nnames, cap_names;
    struct hashed *hashed;
    int nhashed, cap_hashed;
    struct same_key *same;
    int nsame, cap_same;
    int *same_bucket;
    int nsame_buckets; /* power of two, at least nsame */
    int *revoked; /* of hashed: in no list, always looked at */
    int nrevoked, cap_revoked;
    unsigned hashed_types; /* bits: rows of offered[] */
    struct pattern *pattern;
    int npatterns, cap_patterns;
    int *bucket;
    int nbuckets; /* power of two, at least nnames */
};

struct known_hosts *known_hosts_create(void)
{
    return xcalloc(1, sizeof(struct known_hosts));
}

void known_hosts_destroy(struct known_hosts *k)
{
    if (!k)
        return;
    for (int i = 0; i < k->nkeys; i++) {
        free((char *)k->key[i]->type);
        free((char *)k->key[i]->blob);
        free(k->key[i]);
    }
    for (int i = 0; i < k->nfiles; i++)
        free(k->file[i]);
    for (int i = 0; i < k->nnames; i++)
        free(k->name[i].text);
    for (int i = 0; i < k->npatterns; i++)
        free(k->pattern[i].list);
    free(k->key), free(k->file), free(k->name), free(k->hashed), free(k->pattern), free(k->bucket);
    free(k->same), free(k->same_bucket), free(k->revoked);
    free(k);
}

static int bucket_of(const struct known_hosts *k, const char *name)
{
    return (int)(hash64(name, strlen(name)) & (uint64_t)(k->nbuckets - 1));
}

/* Links name i into its bucket, at the end so that chains keep file order. */
static void link_name(struct known_hosts *k, int i)
{
    int *at = &k->bucket[bucket_of(k, k->name[i].text)];

    while (*at >= 0)
        at = &k->name[*at].next;
    k->name[i].next = -1;
    *at = i;
}

static void add_name(struct known_hosts *k, const char *text, size_t n, struct known_key *key)
{
    ARRAY_GROW(k->name, k->nnames, k->cap_names);
    k->name[k->nnames].text = xstrndup(text, n);
    k->name[k->nnames].key = key;
    k->nnames++;
    if (k->nnames > k->nbuckets) {
        k->nbuckets = k->nbuckets ? 2 * k->nbuckets : 64;
        k->bucket = xrealloc(k->bucket, (size_t)k->nbuckets * sizeof *k->bucket);
        for (int i = 0; i < k->nbuckets; i++)
            k->bucket[i] = -1;
        for (int i = 0; i < k->nnames; i++)
            link_name(k, i);
    } else {
        link_name(k, k->nnames - 1);
    }
}

/* Signature algorithms per key type, best first. */
static const struct {
    const char *type, *algorithms;
} offered[] = {
    {"ssh-ed25519", "ssh-ed25519"},
    {"ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256"},
    {"ecdsa-sha2-nistp384", "ecdsa-sha2-nistp384"},
    {"ecdsa-sha2-nistp521", "ecdsa-sha2-nistp521"},
    {"ssh-rsa", "rsa-sha2-512,rsa-sha2-256"},
};
#define NOFFERED ((int)(sizeof offered / sizeof *offered))

static unsigned type_bit(const char *type)
{
    for (int i = 0; i < NOFFERED; i++)
        if (!strcmp(type, offered[i].type))
            return 1u << i;
    return 0;
}

static int *same_bucket_of(const struct known_hosts *k, const char *blob)
{
    return &k->same_bucket[hash64(blob, strlen(blob)) & (uint64_t)(k->nsame_buckets - 1)];
}

static struct same_key *same_of(const struct known_hosts *k, const char *blob)
{
    if (k->nsame_buckets)
        for (int i = *same_bucket_of(k, blob); i >= 0; i = k->same[i].next)
            if (!strcmp(k->same[i].key->blob, blob))
                return &k->same[i];
    return NULL;
}

static void link_same(struct known_hosts *k, int i)
{
    int *at = same_bucket_of(k, k->same[i].key->blob);

    k->same[i].next = *at;
    *at = i;
}

/* Hashed line i behind the others with the same key. */
static void enter_same(struct known_hosts *k, int i)
{
    struct same_key *s = same_of(k, k->hashed[i].key->blob);

    k->hashed[i].next = -1;
    if (s) {
        *(s->first < 0 ? &s->first : &k->hashed[s->last].next) = i;
        s->last = i;
        return;
    }
    ARRAY_GROW(k->same, k->nsame, k->cap_same);
    k->same[k->nsame++] = (struct same_key){k->hashed[i].key, i, i, -1};
    if (k->nsame > k->nsame_buckets) {
        k->nsame_buckets = k->nsame_buckets ? 2 * k->nsame_buckets : 64;
        k->same_bucket = xrealloc(k->same_bucket, (size_t)k->nsame_buckets * sizeof *k->same_bucket);
        for (int b = 0; b < k->nsame_buckets; b++)
            k->same_bucket[b] = -1;
        for (int b = 0; b < k->nsame; b++)
            link_same(k, b);
    } else {
        link_same(k, k->nsame - 1);
    }
}

/* |1|salt|digest */
static int add_hashed(struct known_hosts *k, const char *text, struct known_key *key)
{
    const char *bar = strchr(text + 3, '|');
    struct hashed h = {.key = key};
    uint8_t salt[64], digest[SHA1_BYTES + 4];
    long n;

    if (!bar)
        return -1;
    n = base64_decode(text + 3, (size_t)(bar - text - 3), salt, sizeof salt);
    if (n < 1 || base64_decode(bar + 1, strlen(bar + 1), digest, sizeof digest) != SHA1_BYTES)
        return -1;
    hmac_sha1_init(&h.salt, salt, (size_t)n);
    memcpy(h.digest, digest, SHA1_BYTES);
    ARRAY_GROW(k->hashed, k->nhashed, k->cap_hashed);
    k->hashed[k->nhashed++] = h;
    if (key->revoked) {
        ARRAY_GROW(k->revoked, k->nrevoked, k->cap_revoked);
        k->revoked[k->nrevoked++] = k->nhashed - 1;
    } else {
        k->hashed_types |= type_bit(key->type);
        enter_same(k, k->nhashed - 1);
    }
    return 0;
}

static void lower(char *s)
{
    for (; *s; s++)
        *s = (char)tolower((unsigned char)*s);
}

static int add_names(struct known_hosts *k, char *names, struct known_key *key)
{
    if (!strncmp(names, "|1|", 3))
        return add_hashed(k, names, key);
    if (names[0] == '|')
        return -1;
    lower(names);
    if (strpbrk(names, "*?!")) {
        ARRAY_GROW(k->pattern, k->npatterns, k->cap_patterns);
        k->pattern[k->npatterns++] = (struct pattern){xstrdup(names), key};
        return 0;
    }
    for (char *p = names; *p;) {
        size_t n = strcspn(p, ",");
        if (n)
            add_name(k, p, n, key);
        p += n + (p[n] == ',');
    }
    return 0;
}

static char *word(char **p)
{
    char *s = *p + strspn(*p, " \t"), *end = s + strcspn(s, " \t");

    *p = *end ? end + 1 : end;
    *end = 0;
    return s;
}

/* NULL when the line was taken or is empty, else why not. */
static const char *add_line(struct known_hosts *k, char *line, const char *file, int number)
{
    char *p = line, *first = word(&p), *names = first, *type, *blob;
    struct known_key *key;
    uint8_t scratch[16384];

    if (!*first || *first == '#')
        return NULL;
    if (!strcmp(first, "@cert-authority"))
        return "@cert-authority is not supported: hosts that only a certificate proves are unknown";
    if (*first == '@' && strcmp(first, "@revoked"))
        return "unknown marker";
    if (*first == '@')
        names = word(&p);
    type = word(&p), blob = word(&p);
    if (!*names || !*type || !*blob)
        return "not a host key line";
    if (base64_decode(blob, strlen(blob), scratch, sizeof scratch) < 8)
        return "the key is not base64";
    key = xcalloc(1, sizeof *key);
    *key = (struct known_key){xstrdup(type), xstrdup(blob), file, number, *first == '@'};
    ARRAY_GROW(k->key, k->nkeys, k->cap_keys);
    k->key[k->nkeys++] = key;
    return add_names(k, names, key) ? "the hashed host name cannot be read" : NULL;
}

void known_hosts_add(struct known_hosts *k, const char *file, const char *text, size_t len,
                     struct buf *notes)
{
    const char *end = text + len;
    int number = 0;

    ARRAY_GROW(k->file, k->nfiles, k->cap_files);
    file = k->file[k->nfiles++] = xstrdup(file);
    while (text < end) {
        const char *nl = memchr(text, '\n', (size_t)(end - text)), *stop = nl ? nl : end;
        char *line = xstrndup(text, (size_t)(stop - text));
        size_t n = strlen(line);
        if (n && line[n - 1] == '\r')
            line[n - 1] = 0;
        const char *why = add_line(k, line, file, ++number);
        if (why && notes)
            buf_addf(notes, "%s:%d: %s\n", file, number, why);
        free(line);
        text = nl ? nl + 1 : end;
    }
}

void known_hosts_name(const char *host, int port, struct buf *out)
{
    if (port == 22 || port == 0)
        buf_adds(out, host);
    else
        buf_addf(out, "[%s]:%d", host, port);
}

/* OpenSSH's rule for lists: any negated match refuses, else any match takes. */
static int list_matches(const char *list, const char *name)
{
    int hit = 0;

    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        int no = *p == '!';
        char *pattern = xstrndup(p + no, n - (size_t)no);
        int m = *pattern && glob_match(pattern, name);
        free(pattern);
        if (m && no)
            return 0;
        hit |= m;
        p += n + (p[n] == ',');
    }
    return hit;
}

static void set_add(struct known_set *s, const struct known_key *key)
{
    ARRAY_GROW(s->key, s->n, s->cap);
    s->key[s->n++] = key;
}

/* Whether a hashed line, not found out yet, is this name's; then it is a plain one from now on. */
static int hashed_is(struct known_hosts *k, struct hashed *h, const char *name)
{
    uint8_t d[SHA1_BYTES];

    if (h->known)
        return 0;
    hmac_sha1(&h->salt, name, strlen(name), d);
    if (memcmp(d, h->digest, sizeof d))
        return 0;
    h->known = 1;
    add_name(k, name, strlen(name), h->key);
    return 1;
}

static void find_plain(const struct known_hosts *k, const char *name, struct known_set *set)
{
    if (k->nbuckets)
        for (int i = k->bucket[bucket_of(k, name)]; i >= 0; i = k->name[i].next)
            if (!strcmp(k->name[i].text, name))
                set_add(set, k->name[i].key);
    for (int i = 0; i < k->npatterns; i++)
        if (list_matches(k->pattern[i].list, name))
            set_add(set, k->pattern[i].key);
}

static void find_hashed(struct known_hosts *k, const char *name, struct known_set *set)
{
    for (int i = 0; i < k->nhashed; i++)
        if (hashed_is(k, &k->hashed[i], name))
            set_add(set, k->hashed[i].key);
}

static void find_revoked(struct known_hosts *k, const char *name, struct known_set *set)
{
    for (int i = 0; i < k->nrevoked; i++)
        if (hashed_is(k, &k->hashed[k->revoked[i]], name))
            set_add(set, k->hashed[k->revoked[i]].key);
}

/* The first line with this very key. */
static void find_same(struct known_hosts *k, const char *name, const char *blob, struct known_set *set)
{
    struct same_key *s = same_of(k, blob);

    while (s && s->first >= 0 && k->hashed[s->first].known)
        s->first = k->hashed[s->first].next;
    for (int i = s ? s->first : -1; i >= 0; i = k->hashed[i].next)
        if (hashed_is(k, &k->hashed[i], name)) {
            set_add(set, k->hashed[i].key);
            return;
        }
}

/* The name of a host as the files have it, in lower case. */
static void wanted_name(const char *host, int port, struct buf *name)
{
    buf_reset(name);
    known_hosts_name(host, port, name);
    buf_addc(name, 0);
    lower(name->data);
}

void known_hosts_find(struct known_hosts *k, const char *host, int port, struct known_set *set,
                      int *bare)
{
    struct buf name = BUF_INIT;

    *bare = 0;
    wanted_name(host, port, &name);
    find_plain(k, name.data, set);
    find_hashed(k, name.data, set);
    if (!set->n && port != 22 && port != 0) {
        *bare = 1;
        wanted_name(host, 22, &name);
        find_plain(k, name.data, set);
        find_hashed(k, name.data, set);
    }
    buf_clear(&name);
}

enum known_status known_hosts_check(struct known_hosts *k, const char *host, int port, const char *type,
                                    const char *blob, const struct known_key **at)
{
    struct known_set set = {0};
    struct buf name = BUF_INIT;
    enum known_status status;
    int bare = 0;

    wanted_name(host, port, &name);
    find_plain(k, name.data, &set);
    find_revoked(k, name.data, &set);
    status = known_set_check(&set, 0, type, blob, at);
    if (status != KNOWN_OK && status != KNOWN_REVOKED) {
        find_same(k, name.data, blob, &set);
        status = known_set_check(&set, 0, type, blob, at);
    }
    buf_clear(&name);
    if (status != KNOWN_OK && status != KNOWN_REVOKED) { /* what else is on record? */
        known_set_clear(&set);
        known_hosts_find(k, host, port, &set, &bare);
        status = known_set_check(&set, bare, type, blob, at);
    }
    known_set_clear(&set);
    return status;
}

void known_set_clear(struct known_set *s)
{
    free(s->key);
    *s = (struct known_set){0};
}

enum known_status known_set_check(const struct known_set *s, int bare, const char *type,
                                  const char *blob, const struct known_key **at)
{
    const struct known_key *good = NULL, *other = NULL;

    *at = NULL;
    for (int i = 0; i < s->n; i++) {
        const struct known_key *key = s->key[i];
        int same = !strcmp(key->type, type) && !strcmp(key->blob, blob);
        if (key->revoked) {
            if (same) {
                *at = key;
                return KNOWN_REVOKED;
            }
        } else if (same) {
            good = good ? good : key;
        } else if (!other || (strcmp(other->type, type) && !strcmp(key->type, type))) {
            other = key; /* the line of the same type tells the user most */
        }
    }
    *at = good ? good : bare ? NULL : other;
    return good ? KNOWN_OK : *at ? KNOWN_CHANGED : KNOWN_UNKNOWN;
}

/* Those whose bit is set first, each part in the order of offered[]. */
static void list_algorithms(unsigned first, struct buf *out)
{
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < NOFFERED; i++)
            if ((first >> i & 1) == !pass)
                buf_addf(out, "%s%s", out->len ? "," : "", offered[i].algorithms);
}

static unsigned set_types(const struct known_set *s)
{
    unsigned types = 0;

    for (int j = 0; j < s->n; j++)
        types |= s->key[j]->revoked ? 0 : type_bit(s->key[j]->type);
    return types;
}

void known_set_algorithms(const struct known_set *s, struct buf *out)
{
    list_algorithms(set_types(s), out);
}

void known_hosts_algorithms(const struct known_hosts *k, const char *host, int port, struct buf *out)
{
    struct known_set set = {0};
    struct buf name = BUF_INIT;
    unsigned types;

    wanted_name(host, port, &name);
    find_plain(k, name.data, &set);
    if (!set.n && port != 22 && port != 0) {
        wanted_name(host, 22, &name);
        find_plain(k, name.data, &set);
    }
    types = set_types(&set);
    list_algorithms(types ? types : k->hashed_types, out);
    known_set_clear(&set);
    buf_clear(&name);
}
