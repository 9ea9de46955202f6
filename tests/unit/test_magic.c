/* The search for the magic: found at every cut of the stream, noise kept apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/magic.h"
#include "launcher/msg.h"
#include "launcher/said.h"

#include <stdlib.h>
#include <string.h>

/* Noise that begins like the magic, the magic, then bytes that are not ours to touch. */
static const char stream[] = "motd\r\n\r\n\001DS-AGENT-0 \r\r" MSG_MAGIC "rest" MSG_MAGIC;
#define NOISE (sizeof "motd\r\n\r\n\001DS-AGENT-0 \r\r" - 1)

static void every_cut(void **state)
{
    size_t cut, n = sizeof stream - 1, at;
    (void)state;

    for (cut = 0; cut <= n; cut++) {
        struct magic m = MAGIC_INIT;

        at = magic_feed(&m, stream, cut);
        if (!m.found) {
            assert_int_equal(at, cut);
            at = cut + magic_feed(&m, stream + cut, n - cut);
        }
        assert_true(m.found);
        assert_int_equal(at, NOISE + strlen(MSG_MAGIC));
        assert_int_equal(m.noise.len, NOISE);
        assert_memory_equal(m.noise.data, stream, NOISE);
        magic_clear(&m);
    }
}

static void hopeless(void **state)
{
    struct magic m = MAGIC_INIT;
    char line[1024];
    int i;
    (void)state;

    memset(line, 'x', sizeof line);
    for (i = 0; i < 1024; i++) {
        assert_int_equal(magic_feed(&m, line, sizeof line), sizeof line);
        assert_false(magic_hopeless(&m));
    }
    magic_feed(&m, "y", 1);
    assert_true(magic_hopeless(&m));
    assert_true(m.noise.len <= 2 * MAGIC_NOISE_BYTES);
    assert_int_equal(m.noise.data[m.noise.len - 1], 'y');
    magic_clear(&m);
}

static void add_line(void *ctx, const char *line)
{
    buf_addf(ctx, "%s|", line);
}

/* What stands on stderr beside it: no byte is lost where a line is too long, the end is kept. */
static void said(void **state)
{
    struct said s = {BUF_INIT, BUF_INIT};
    struct buf seen = BUF_INIT;
    char *text = xmalloc(2 * SAID_LINE_BYTES);

    memset(text, 'a', SAID_LINE_BYTES);
    memcpy(text + SAID_LINE_BYTES, "bc\r\nd\n\nend", 11);
    said_feed(&s, text, SAID_LINE_BYTES + 3, add_line, &seen);
    said_feed(&s, text + SAID_LINE_BYTES + 3, 7, add_line, &seen);
    assert_int_equal(seen.len, SAID_LINE_BYTES + 7);
    assert_string_equal(seen.data + SAID_LINE_BYTES, "|bc|d||");
    said_end(&s, add_line, &seen);
    said_end(&s, add_line, &seen);
    assert_string_equal(seen.data + SAID_LINE_BYTES, "|bc|d||end|");
    assert_in_range(s.tail.len, SAID_TAIL_BYTES, 2 * SAID_TAIL_BYTES);
    assert_string_equal(s.tail.data + s.tail.len - 11, "a\nbc\nd\n\nend\n" + 1);
    said_clear(&s);
    buf_clear(&seen);
    free(text);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_cut), cmocka_unit_test(hopeless), cmocka_unit_test(said)};

    return cmocka_run_group_tests_name("magic", tests, NULL, NULL);
}
