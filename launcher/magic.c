/* The search for MSG_MAGIC: see magic.h. The magic's first byte occurs in it only once, so that after a
 * mismatch nothing but that byte can begin a new match, and a scanner without look-back is exact. */
#include "launcher/magic.h"

#include "launcher/msg.h"

#include <string.h>

static const char magic[] = MSG_MAGIC;

static void add_noise(struct magic *m, const char *data, size_t n)
{
    buf_add(&m->noise, data, n);
    if (m->noise.len > 2 * MAGIC_NOISE_BYTES)
        buf_drop(&m->noise, m->noise.len - MAGIC_NOISE_BYTES);
}

size_t magic_feed(struct magic *m, const void *data, size_t n)
{
    const char *p = data;
    size_t i;

    if (m->found)
        return 0;
    for (i = 0; i < n && !m->found; i++) {
        if (p[i] != magic[m->matched]) {
            add_noise(m, magic, m->matched);
            m->matched = 0;
        }
        if (p[i] != magic[m->matched])
            add_noise(m, p + i, 1);
        else if (++m->matched == sizeof magic - 1)
            m->found = 1;
    }
    m->seen += i;
    return i;
}

int magic_hopeless(const struct magic *m)
{
    return !m->found && m->seen > MAGIC_SEARCH_BYTES;
}

void magic_clear(struct magic *m)
{
    buf_clear(&m->noise);
    *m = (struct magic)MAGIC_INIT;
}
