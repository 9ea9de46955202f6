/* Lines of stderr: see said.h. */
#include "launcher/said.h"

static void give(struct said *s, void (*line)(void *ctx, const char *line), void *ctx)
{
    buf_addf(&s->tail, "%s\n", buf_str(&s->line));
    if (s->tail.len > 2 * SAID_TAIL_BYTES)
        buf_drop(&s->tail, s->tail.len - SAID_TAIL_BYTES);
    line(ctx, buf_str(&s->line));
    buf_reset(&s->line);
}

void said_feed(struct said *s, const char *data, size_t n, void (*line)(void *ctx, const char *line), void *ctx)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] == '\n' || s->line.len == SAID_LINE_BYTES)
            give(s, line, ctx);
        if (data[i] != '\n' && data[i] != '\r')
            buf_addc(&s->line, data[i]);
    }
}

void said_end(struct said *s, void (*line)(void *ctx, const char *line), void *ctx)
{
    if (s->line.len)
        give(s, line, ctx);
}

void said_clear(struct said *s)
{
    buf_clear(&s->line);
    buf_clear(&s->tail);
}
