/* Folding of one command's output on many hosts: what is equal stands once, under a compressed list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/gather.h"

#include <stdlib.h>
#include <string.h>

#define RULE "----------------\n"

static struct buf seen[2];

static void emit(void *ctx, int stream, const char *text, size_t n)
{
    buf_add(&seen[stream - 1], text, n);
}

static char *names[] = {"n1", "n2", "n3", "n4", "x"};

static void expect(int stream, const char *what)
{
    assert_string_equal(buf_str(&seen[stream - 1]), what);
    buf_reset(&seen[stream - 1]);
}

static void feed(struct gather *g, int host, int stream, const char *s)
{
    gather_feed(g, host, stream, s, strlen(s));
}

static void folds(void **state)
{
    struct gather *g = gather_create(names, 5, 0, emit, NULL);
    struct buf said = BUF_INIT;

    feed(g, 2, 1, "same\n");
    gather_end(g, 2, 0, NULL);
    feed(g, 0, 1, "sa");
    feed(g, 0, 1, "me\n");
    gather_end(g, 0, 0, NULL);
    feed(g, 1, 1, "same"); /* bytes differ: no newline */
    gather_end(g, 1, 0, NULL);
    feed(g, 3, 1, "same\n"); /* status differs */
    gather_end(g, 3, 2, "ended with code 2");
    gather_end(g, 4, 2, "ended with code 2"); /* without output: said, not printed */
    gather_print(g, &said);
    expect(1, RULE "n[1,3] (2)\n" RULE "same\n" RULE "n2\n" RULE "same\n" RULE "n4\n" RULE "same\n");
    expect(2, "");
    assert_string_equal(buf_str(&said), "n4,x: ended with code 2\n");
    buf_clear(&said);
    gather_destroy(g);
}

static void streams(void **state)
{
    struct gather *g = gather_create(names, 2, 0, emit, NULL);
    struct buf said = BUF_INIT;
    int i;

    for (i = 0; i < 2; i++) { /* the order between the streams is chance */
        feed(g, i, 1 + i, i ? "err\n" : "out\n");
        feed(g, i, 2 - i, i ? "out\n" : "err\n");
        gather_end(g, i, 0, "");
    }
    feed(g, 0, 1, "too late\n");
    gather_print(g, &said);
    expect(1, RULE "n[1-2] (2)\n" RULE "out\n");
    expect(2, RULE "n[1-2] (2)\n" RULE "err\n");
    assert_string_equal(buf_str(&said), "");
    gather_destroy(g);
}

static void count(void *ctx, int stream, const char *text, size_t n)
{
    *(size_t *)ctx += n;
}

/* What is kept is bounded, of a host and of all together. */
static void bounded(void **state)
{
    struct buf said = BUF_INIT;
    size_t n = GATHER_HOST_BYTES + 1, total = 0;
    char *much = malloc(n);
    struct gather *g = gather_create(names, 5, 0, count, &total);
    int i;

    assert_non_null(much);
    memset(much, 'x', n);
    for (i = 0; i < 5; i++)
        gather_feed(g, i, 1, much, i ? n - 1 : n); /* the first is beyond its own limit, the last beyond that of all */
    for (i = 0; i < 5; i++)
        gather_end(g, i, i, NULL);
    gather_print(g, &said);
    assert_int_equal(total, 4 * ((n - 1) + strlen(RULE "n1\n" RULE) + 1)); /* a newline at the end of each */
    assert_string_equal(buf_str(&said),
                        "n1,x: output was dropped: 64 MiB are kept of a host, 256 MiB of all; take --live\n");
    buf_clear(&said);
    gather_destroy(g);
    free(much);
}

static void alone(void **state)
{
    struct gather *g = gather_create(names, 1, 0, emit, NULL);
    struct buf said = BUF_INIT;

    gather_feed(g, 0, 1, "a\0b", 3);
    gather_end(g, 0, 0, NULL);
    gather_print(g, &said);
    assert_int_equal(seen[0].len, 3);
    assert_memory_equal(seen[0].data, "a\0b", 3);
    buf_reset(&seen[0]);
    gather_destroy(g);
}

static void live(void **state)
{
    struct gather *g = gather_create(names, 2, 1, emit, NULL);
    struct buf said = BUF_INIT;

    feed(g, 0, 1, "a");
    feed(g, 1, 1, "b\nc");
    expect(1, "n2: b\n");
    feed(g, 0, 1, "a\n\nd\n");
    expect(1, "n1: aa\nn1: \nn1: d\n");
    gather_end(g, 1, 1, "ended with code 1");
    expect(1, "n2: c\n");
    gather_end(g, 0, 0, NULL);
    gather_print(g, &said);
    expect(1, "");
    assert_string_equal(buf_str(&said), "n2: ended with code 1\n");
    buf_clear(&said);
    gather_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(folds), cmocka_unit_test(streams), cmocka_unit_test(bounded),
                                       cmocka_unit_test(alone), cmocka_unit_test(live)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    buf_clear(&seen[0]);
    buf_clear(&seen[1]);
    return failed;
}
