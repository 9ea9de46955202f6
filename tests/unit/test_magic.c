/* The search for the magic: found at every cut of the stream, noise kept apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/magic.h"
#include "launcher/msg.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_cut), cmocka_unit_test(hopeless)};

    return cmocka_run_group_tests_name("magic", tests, NULL, NULL);
}
