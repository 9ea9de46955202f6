/* Lines and prefixes: any cut of two chatty ranks' bytes gives the same whole lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct buf seen;

static void emit(void *ctx, int stream, const char *text, size_t n)
{
    (void)ctx;
    if (stream == 2)
        buf_addc(&seen, '!');
    buf_add(&seen, text, n);
}

static const char *const hosts[] = {"w1", "w2", "w3", "w4"};

static void expect(const char *what)
{
    assert_string_equal(buf_str(&seen), what);
    buf_reset(&seen);
}

static void feed(struct output *o, int rank, int stream, const char *s, int64_t now)
{
    output_feed(o, rank, stream, s, strlen(s), now);
}

static void lines(void **state)
{
    struct output *o = output_create(4, PREFIX_RANK, hosts, emit, NULL);
    (void)state;

    feed(o, 0, 1, "a\nb\n\nc", 0);
    expect("[0] a\n[0] b\n[0] \n");
    feed(o, 1, 1, "x\n", 0);
    expect("[1] x\n");
    feed(o, 0, 1, "d\n", 0);
    expect("[0] cd\n");
    feed(o, 3, 2, "bad\n", 0);
    expect("![3] bad\n");
    output_destroy(o);
    o = output_create(4, PREFIX_HOST, hosts, emit, NULL);
    feed(o, 2, 1, "a\n", 0);
    expect("w3:2: a\n");
    output_destroy(o);
}

static void partial(void **state)
{
    struct output *o = output_create(4, PREFIX_RANK, hosts, emit, NULL);
    (void)state;

    feed(o, 1, 1, "name? ", 1000);
    assert_int_equal(output_tick(o, 1000 + OUTPUT_PARTIAL_MS - 1), 1);
    expect("");
    assert_int_equal(output_tick(o, 1000 + OUTPUT_PARTIAL_MS), -1);
    expect("[1] name? ");
    feed(o, 1, 1, "more\n", 2000); /* nobody else wrote: it goes on */
    expect("more\n");
    feed(o, 1, 1, "name? ", 3000);
    output_tick(o, 9000);
    feed(o, 2, 1, "x\n", 9000); /* somebody did */
    expect("[1] name? \n[2] x\n");
    feed(o, 1, 1, "yes\n", 9000);
    expect("[1] yes\n");
    feed(o, 1, 1, "end", 9000);
    output_feed(o, 1, 1, NULL, 0, 9000);
    expect("[1] end\n");
    output_feed(o, 1, 1, NULL, 0, 9000);
    expect("");
    output_destroy(o);
}

static void lone(void **state)
{
    struct output *o = output_create(1, PREFIX_NONE, hosts, emit, NULL);
    (void)state;

    feed(o, 0, 1, "no newline", 0);
    output_feed(o, 0, 1, NULL, 0, 0);
    expect("no newline");
    output_destroy(o);
}

/* 2 ranks, 200 lines each, cut and interleaved by a fixed pseudo-random rule. */
static void any_cut(void **state)
{
    struct output *o = output_create(2, PREFIX_RANK, hosts, emit, NULL);
    struct buf text[2] = {BUF_INIT, BUF_INIT};
    size_t at[2] = {0, 0}, n;
    unsigned seed = 7;
    char want[64], *p;
    int i, r, next[2] = {0, 0};
    (void)state;

    for (i = 0; i < 200; i++)
        for (r = 0; r < 2; r++)
            buf_addf(&text[r], "line %d of %d\n", i, r);
    while (at[0] < text[0].len || at[1] < text[1].len) {
        seed = seed * 1103515245 + 12345;
        r = seed >> 16 & 1;
        n = seed >> 20 & 31;
        if (n > text[r].len - at[r])
            n = text[r].len - at[r];
        if (n)
            output_feed(o, r, 1, text[r].data + at[r], n, 0);
        at[r] += n;
    }
    for (p = strtok(seen.data, "\n"); p; p = strtok(NULL, "\n")) {
        assert_true(p[0] == '[' && (p[1] == '0' || p[1] == '1'));
        r = p[1] - '0';
        snprintf(want, sizeof want, "[%d] line %d of %d", r, next[r]++, r);
        assert_string_equal(p, want);
    }
    assert_int_equal(next[0] + next[1], 400);
    buf_reset(&seen);
    buf_clear(&text[0]);
    buf_clear(&text[1]);
    output_destroy(o);
}

static void tail(void **state)
{
    struct output *o = output_create(2, PREFIX_RANK, hosts, emit, NULL);
    struct buf b = BUF_INIT;
    char line[64];
    int i;
    (void)state;

    output_tail(o, 0, &b);
    assert_int_equal(b.len, 0);
    feed(o, 0, 1, "only\n", 0);
    output_tail(o, 0, &b);
    assert_string_equal(buf_str(&b), "only");
    for (i = 0; i < 5000; i++) {
        snprintf(line, sizeof line, "line number %d\n", i);
        feed(o, 0, 1 + i % 2, line, 0);
    }
    buf_reset(&b);
    output_tail(o, 0, &b);
    assert_memory_equal(b.data, "line number 4980\n", 17);
    assert_string_equal(b.data + b.len - 16, "line number 4999");
    buf_clear(&b);
    buf_reset(&seen);
    output_destroy(o);
}

static void long_line(void **state)
{
    struct output *o = output_create(2, PREFIX_RANK, hosts, emit, NULL);
    char *big = malloc(100000);
    int i;
    (void)state;

    memset(big, 'z', 100000);
    for (i = 0; i < 10; i++)
        output_feed(o, 1, 1, big, 10000, 0);
    output_feed(o, 1, 1, "\n", 1, 0);
    assert_int_equal(seen.len, 4 + 100000 + 1); /* one prefix, one newline */
    buf_reset(&seen);
    free(big);
    output_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),   cmocka_unit_test(partial), cmocka_unit_test(lone),
        cmocka_unit_test(any_cut), cmocka_unit_test(tail),    cmocka_unit_test(long_line),
    };
    int rc = cmocka_run_group_tests_name("output", tests, NULL, NULL);

    buf_clear(&seen);
    return rc;
}
