/* Lines and prefixes: any cut of two chatty ranks' bytes gives the same whole lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/fold.h"
#include "launcher/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct buf seen;

static void emit(void *ctx, int stream, struct buf *text)
{
    (void)ctx;
    if (stream == 2)
        buf_addc(&seen, '!');
    buf_add(&seen, text->data, text->len);
    buf_clear(text);
}

static void live(void *ctx, const char *line)
{
    (void)ctx;
    buf_addf(&seen, "<%s>", line);
}

static double wall(void)
{
    return 86399.25; /* 23:59:59.250 in UTC */
}

static struct output *make(int world, struct output_style style)
{
    static const char *const hosts[] = {"w1", "w2", "w3", "w4"};

    style.emit = emit;
    style.wall = wall;
    return output_create(world, &style, hosts);
}

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
    struct output *o = make(4, (struct output_style){.prefix = PREFIX_RANK});
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
    o = make(4, (struct output_style){.prefix = PREFIX_HOST});
    feed(o, 2, 1, "a\n", 0);
    expect("w3:2: a\n");
    output_destroy(o);
}

static void partial(void **state)
{
    struct output *o = make(4, (struct output_style){.prefix = PREFIX_RANK});
    (void)state;

    feed(o, 1, 1, "name? ", 1000);
    output_tick(o, 1000 + OUTPUT_PARTIAL_MS - 1);
    expect("");
    output_tick(o, 1000 + OUTPUT_PARTIAL_MS);
    expect("[1] name? ");
    feed(o, 1, 1, "more\n", 2000); /* nobody else wrote: it goes on */
    expect("more\n");
    feed(o, 1, 1, "name? ", 3000);
    output_tick(o, 9000);
    feed(o, 2, 1, "x\n", 9000); /* somebody did */
    expect("[1] name? ...\n[2] x\n");
    feed(o, 1, 1, "yes\n", 9000);
    expect("[1] ... yes\n");
    feed(o, 1, 1, "end", 9000);
    output_feed(o, 1, 1, NULL, 0, 9000);
    expect("[1] end\n");
    output_feed(o, 1, 1, NULL, 0, 9000);
    expect("");
    output_destroy(o);
}

static void lone(void **state)
{
    struct output *o = make(1, (struct output_style){.prefix = PREFIX_NONE});
    (void)state;

    feed(o, 0, 1, "no newline", 0);
    output_feed(o, 0, 1, NULL, 0, 0);
    expect("no newline");
    output_destroy(o);
}

/* 2 ranks, 200 lines each, cut and interleaved by a fixed pseudo-random rule. */
static void any_cut(void **state)
{
    struct output *o = make(2, (struct output_style){.prefix = PREFIX_RANK});
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
    struct output *o = make(2, (struct output_style){.prefix = PREFIX_RANK});
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
    feed(o, 1, 1, "\n \n\r\n\033[K\n", 0);
    output_tail(o, 1, &b);
    assert_string_equal(buf_str(&b), ""); /* nothing stands there */
    feed(o, 1, 1, " 1%\r 2%\rbad\033[2A\n\nworse\n\n", 0);
    output_tail(o, 1, &b);
    assert_string_equal(buf_str(&b), "bad\n\nworse"); /* as on the terminal: what was drawn over is gone */
    buf_clear(&b);
    buf_reset(&seen);
    output_destroy(o);
}

static void long_line(void **state)
{
    struct output *o = make(2, (struct output_style){.prefix = PREFIX_RANK});
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

static void prefixes(void **state)
{
    static const struct {
        const char *words;
        int bits;
        const char *line;
    } known[] = {{"none", 0, "x\n"},
                 {"rank", PREFIX_RANK, "[1] x\n"},
                 {"host", PREFIX_HOST, "w2:1: x\n"},
                 {"host:rank", PREFIX_HOST, "w2:1: x\n"},
                 {"time", PREFIX_TIME, "23:59:59.250 x\n"},
                 {"time,rank", PREFIX_TIME | PREFIX_RANK, "23:59:59.250 [1] x\n"},
                 {"host:rank,time", PREFIX_TIME | PREFIX_HOST, "23:59:59.250 w2:1: x\n"}};
    static const char *const wrong[] = {"", "ranks", "rank,", "none,rank", "rank,host", ",", "rank time"};
    (void)state;

    setenv("TZ", "UTC", 1);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct output *o = make(4, (struct output_style){.prefix = output_prefix_parse(known[i].words)});

        assert_int_equal(output_prefix_parse(known[i].words), known[i].bits);
        feed(o, 1, 1, "x\n", 0);
        expect(known[i].line);
        output_destroy(o);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(output_prefix_parse(wrong[i]), -1);
}

/* no-color.org and bixense.com/clicolors. */
static void color(void **state)
{
    struct output *o = make(4, (struct output_style){.prefix = PREFIX_RANK, .color = 1});
    (void)state;

    feed(o, 0, 1, "a\nb \033[31mred\n", 0);
    expect("\033[32m[0]\033[0m a\n\033[32m[0]\033[0m b \033[31mred\033[0m\n");
    output_destroy(o);
    assert_int_equal(output_wants_color(NULL, NULL, NULL, NULL, 1), 1);
    assert_int_equal(output_wants_color("auto", NULL, NULL, NULL, 0), 0);
    assert_int_equal(output_wants_color(NULL, "1", NULL, "1", 1), 0);
    assert_int_equal(output_wants_color(NULL, "", NULL, NULL, 1), 1);
    assert_int_equal(output_wants_color(NULL, NULL, NULL, "1", 0), 1);
    assert_int_equal(output_wants_color(NULL, NULL, NULL, "0", 0), 0);
    assert_int_equal(output_wants_color(NULL, NULL, "0", NULL, 1), 0);
    assert_int_equal(output_wants_color("always", "1", NULL, NULL, 0), 1);
    assert_int_equal(output_wants_color("never", NULL, NULL, "1", 1), 0);
}

/* A bar in a pipe: its newest state at once, then once a second; its end; other ranks' lines stay whole. */
static void bar(void **state)
{
    struct output *o = make(4, (struct output_style){.prefix = PREFIX_RANK});
    (void)state;

    feed(o, 0, 1, "\r 10%", 1000);
    output_tick(o, 1000);
    expect("[0]  10%\n");
    feed(o, 0, 1, "\r 20%\r 30%", 1500);
    feed(o, 1, 1, "x\n", 1500);
    output_tick(o, 1600);
    expect("[1] x\n");
    output_tick(o, 1500 + OUTPUT_BAR_MS);
    expect("[0]  30%\n");
    feed(o, 0, 1, "\r 99%\r100%\n", 3000);
    expect("[0] 100%\n");
    output_tick(o, 9000);
    expect("");
    feed(o, 0, 1, "\r100%", 4000);
    output_tick(o, 4000 + OUTPUT_BAR_MS);
    expect("[0] 100%\n");
    feed(o, 0, 1, "\nnext\n\n", 5100); /* its line has ended already */
    expect("[0] next\n[0] \n");
    feed(o, 2, 1, "dos\r\n50%\r60%\r\n", 3000);
    expect("[2] dos\n[2] 60%\n");
    feed(o, 3, 1, "up\033[A\033[2Kand \033[1mbold\033[0m\033]0;title\007\n", 3000); /* moves go, colours stay */
    expect("[3] upand \033[1mbold\033[0m0;title\007\n");
    output_destroy(o);
}

/* On a terminal the bar is the live line: the one of the lowest rank. */
static void live_bar(void **state)
{
    struct output *o = make(4, (struct output_style){.prefix = PREFIX_RANK, .live = live});
    (void)state;

    feed(o, 2, 1, "\r 10%", 1000);
    output_tick(o, 1100);
    expect("<[2]  10%>");
    output_tick(o, 1200);
    expect("");
    feed(o, 1, 2, "\r 5%", 1200);
    output_tick(o, 1300);
    expect("<[1]  5%>");
    feed(o, 1, 2, "\rdone\n", 1400);
    expect("![1] done\n");
    output_tick(o, 1500);
    expect("<[2]  10%>");
    output_feed(o, 2, 1, NULL, 0, 1600);
    expect("[2]  10%\n");
    output_tick(o, 1700);
    expect("<>");
    output_destroy(o);
}

static void folded(void **state)
{
    struct output *o = make(4, (struct output_style){.prefix = PREFIX_RANK, .fold = 1});
    int r;
    (void)state;

    for (r = 0; r < 4; r++)
        feed(o, r, 1, "same\n", 0);
    expect("[0-3] same\n"); /* all have said it: at once */
    feed(o, 3, 1, "a\nb\n", 0);
    feed(o, 1, 1, "a\nmine\nb\n", 0);
    feed(o, 0, 1, "b\na\n", 0); /* another order: its a is behind its b */
    expect("");
    output_tick(o, FOLD_MS - 1);
    expect("");
    output_tick(o, FOLD_MS);
    expect("[1,3] a\n[0,3] b\n[1] mine\n[1] b\n[0] a\n"); /* its b is behind mine */
    for (r = 0; r < 3; r++) {
        feed(o, r, 1, "last\n", 9000); /* and ends: rank 3 is still waited for */
        output_feed(o, r, 1, NULL, 0, 9000);
    }
    expect("");
    feed(o, 3, 1, "last\n", 9001);
    expect("[0-3] last\n");
    feed(o, 3, 1, "alone\n", 9001); /* nobody else can say it */
    expect("[3] alone\n");
    output_destroy(o);
}

/* A rank list that has no end. */
static void folded_many(void **state)
{
    struct output *o = make(300, (struct output_style){.prefix = PREFIX_RANK, .fold = 1});
    int r;
    (void)state;

    for (r = 0; r < 300; r += 2)
        feed(o, r, 1, "even\n", 0);
    output_tick(o, FOLD_MS);
    expect("[0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,... 150 ranks] even\n");
    output_destroy(o);
}

/* Of any lines of 4 ranks, each rank's own come out in its order, none is lost, whatever was folded. */
static void fold_keeps_order(void **state)
{
    struct output *o = make(4, (struct output_style){.prefix = PREFIX_RANK, .fold = 1});
    struct buf said[4] = {BUF_INIT, BUF_INIT, BUF_INIT, BUF_INIT}, got[4] = {BUF_INIT, BUF_INIT, BUF_INIT, BUF_INIT};
    unsigned seed = 11;
    char line[16], *p, *text;
    int i, r;
    (void)state;

    for (i = 0; i < 4000; i++) {
        seed = seed * 1103515245 + 12345;
        r = seed >> 16 & 3;
        snprintf(line, sizeof line, "%u\n", seed >> 20 & 7);
        buf_adds(&said[r], line);
        feed(o, r, 1 + (seed >> 24 & 1), line, i);
        output_tick(o, i);
    }
    output_flush(o);
    for (p = strtok(seen.data, "\n"); p; p = strtok(NULL, "\n")) {
        p += *p == '!';
        text = strchr(p, ']') + 2;
        for (p++; *p != ']'; p += *p == ',') {
            int to, from = (int)strtol(p, &p, 10);

            to = *p == '-' ? (int)strtol(p + 1, &p, 10) : from;
            for (r = from; r <= to; r++)
                buf_addf(&got[r], "%s\n", text);
        }
    }
    for (r = 0; r < 4; r++) {
        assert_string_equal(buf_str(&got[r]), buf_str(&said[r]));
        buf_clear(&got[r]);
        buf_clear(&said[r]);
    }
    buf_reset(&seen);
    output_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),   cmocka_unit_test(partial), cmocka_unit_test(lone),
        cmocka_unit_test(any_cut), cmocka_unit_test(tail),    cmocka_unit_test(long_line),
        cmocka_unit_test(prefixes), cmocka_unit_test(color),   cmocka_unit_test(bar),
        cmocka_unit_test(live_bar), cmocka_unit_test(folded),  cmocka_unit_test(fold_keeps_order),
        cmocka_unit_test(folded_many),
    };
    int rc = cmocka_run_group_tests_name("output", tests, NULL, NULL);

    buf_clear(&seen);
    return rc;
}
