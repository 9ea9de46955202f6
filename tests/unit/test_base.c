/* The small things of base: buffers, JSON text, strict readers, errors, wire. Expected values by
 * hand. */
#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "engine/base/hash.h"
#include "engine/base/log.h"
#include "engine/base/parse.h"
#include "engine/base/wire.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void buffers(void **state)
{
    struct buf b = BUF_INIT;
    char *s;

    (void)state;
    assert_string_equal(buf_str(&b), "");
    for (int i = 0; i < 1000; i++)
        buf_addf(&b, "%d,", i);
    assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4);
    assert_int_equal(b.data[b.len], 0);
    buf_drop(&b, b.len - 4);
    assert_string_equal(b.data, "999,");
    buf_reset(&b);
    buf_add(&b, "a\0b", 3);
    assert_int_equal(b.len, 3);
    s = buf_detach(&b);
    assert_memory_equal(s, "a\0b", 4);
    assert_null(b.data);
    free(s);
    s = xasprintf("%s-%d", "x", 7);
    assert_string_equal(s, "x-7");
    free(s);
    s = xstrndup("hello", 3);
    assert_string_equal(s, "hel");
    free(s);
}

static void json_text(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain", "plain"},
        {"a\"b\\c", "a\\\"b\\\\c"},
        {"\n\t\x01\x7f", "\\n\\t\\u0001\\u007f"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xff", "\xef\xbf\xbd"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},                 /* overlong NUL */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* surrogate */
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"x\xe2\x82", "x\xef\xbf\xbd\xef\xbf\xbd"}, /* cut short */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b = BUF_INIT;

        buf_add_json(&b, cases[i].in, strlen(cases[i].in));
        assert_string_equal(b.data, cases[i].out);
        buf_clear(&b);
    }
}

static void errors(void **state)
{
    struct err e = ERR_INIT;
    char big[3000];

    (void)state;
    errno = ENOSPC;
    assert_int_equal(err_set(&e, ERR_JOB_IO, "x: %m"), -1);
    assert_int_equal(errno, ENOSPC);
    assert_string_equal(e.text, "x: No space left on device");
    assert_int_equal(err_class(&e), ERR_CLASS_JOB);
    assert_int_equal(err_exit_code(&e), 1);
    assert_string_equal(err_unprefix("w1: no", "w1"), "no");
    assert_string_equal(err_unprefix("w12: no", "w1"), "w12: no");
    assert_string_equal(err_unprefix("w1", "w1"), "w1");
    assert_string_equal(err_unprefix("w1:", "w1"), "w1:");
    err_prefix(&e, "rank %d", 3);
    assert_string_equal(e.text, "rank 3: x: No space left on device");
    memset(big, 'y', sizeof big - 1);
    big[sizeof big - 1] = 0;
    err_set(&e, ERR_INPUT_FILE, "%s", big);
    assert_int_equal(strlen(e.text), ERR_TEXT_BYTES - 1);
    assert_string_equal(e.text + ERR_TEXT_BYTES - 4, "...");
    assert_int_equal(err_exit_code(&e), 2);
    assert_int_equal(err_set(NULL, ERR_INPUT, "nobody"), -1);
}

static void whole_numbers(void **state)
{
    static const char *const bad[] = {"",    " 1",  "1 ",  "1x",  "x",   "-",
                                      "0x1", "1.0", "--1", "+-1", "1_0", "9223372036854775808"};
    int64_t v = 42;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(parse_i64(bad[i], INT64_MIN, INT64_MAX, &v), -1);
        assert_int_equal(v, 42);
    }
    assert_int_equal(parse_i64("11", 0, 10, &v), -1);
    assert_int_equal(parse_i64("-1", 0, 10, &v), -1);
    assert_int_equal(parse_i64("007", 0, 10, &v), 0);
    assert_int_equal(v, 7);
    assert_int_equal(parse_i64("-9223372036854775808", INT64_MIN, 0, &v), 0);
    assert_true(v == INT64_MIN);
    assert_int_equal(parse_i64("9223372036854775807", 0, INT64_MAX, &v), 0);
    assert_true(v == INT64_MAX);
}

static void real_numbers(void **state)
{
    static const char *const bad[] = {"",    "nan", "inf", "0x1p3", "1e999", "1e", " 1",
                                      "1,5", ".",   "-",   "1 ",    "1f",    "e5"};
    double v = 42;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(parse_f64(bad[i], &v), -1);
        assert_true(v == 42);
    }
    assert_int_equal(parse_f64("3e-4", &v), 0);
    assert_true(v == 0.0003);
    assert_int_equal(parse_f64("-.5", &v), 0);
    assert_true(v == -0.5);
    if (setlocale(LC_ALL, "de_DE.UTF-8")) {
        assert_int_equal(parse_f64("1.5", &v), 0);
        assert_true(v == 1.5);
        setlocale(LC_ALL, "C");
    }
}

static void sizes_and_times(void **state)
{
    static const struct {
        const char *text;
        int64_t value; /* -1: refused */
    } sizes[] = {{"0", 0},           {"512", 512},
                 {"64k", 64000},     {"64Ki", 65536},
                 {"5e8", 500000000}, {"2Gi", 2147483648},
                 {"1.5e3", 1500},    {"1T", 1000000000000},
                 {"1.5", -1},        {"", -1},
                 {"k", -1},          {"-1", -1},
                 {"1kk", -1},        {"1 k", -1},
                 {"1e30", -1},       {"9000000000000T", -1},
                 {"1KB", -1}},
      times[] = {{"5", 5000},     {"5s", 5000},    {"250ms", 250},      {"1.5", 1500},
                 {"2m", 120000},  {"1h", 3600000}, {"1d", 86400000},    {"0", 0},
                 {"0.5m", 30000}, {"", -1},        {"-1", -1},          {"1x", -1},
                 {"1 s", -1},     {"1e3", -1},     {"99999999999d", -1}};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t v = -1;

        assert_int_equal(parse_size(sizes[i].text, &v), sizes[i].value < 0 ? -1 : 0);
        assert_int_equal(v, sizes[i].value);
    }
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        int64_t v = -1;

        assert_int_equal(parse_ms(times[i].text, &v), times[i].value < 0 ? -1 : 0);
        assert_int_equal(v, times[i].value);
    }
}

static void words(void **state)
{
    static const char *const known[] = {"stage", "gradient_clipping", "train_batch_size", "lr"};
    int v = -1;

    (void)state;
    assert_int_equal(parse_bool("Yes", &v), 0);
    assert_int_equal(v, 1);
    assert_int_equal(parse_bool("OFF", &v), 0);
    assert_int_equal(v, 0);
    assert_int_equal(parse_bool("2", &v), -1);
    assert_int_equal(parse_bool("", &v), -1);
    assert_string_equal(nearest_word("stge", known, 4), "stage");
    assert_string_equal(nearest_word("gradient_cliping", known, 4), "gradient_clipping");
    assert_string_equal(nearest_word("train_bacth_size", known, 4), "train_batch_size");
    assert_string_equal(nearest_word("rl", known, 4), "lr");
    assert_null(nearest_word("optimizer", known, 4));
    assert_null(nearest_word("", known, 0));
}

static void globs(void **state)
{
    (void)state;
    assert_true(glob_match("*", ""));
    assert_true(glob_match("block.*.attn.*", "block.0.attn.q"));
    assert_true(glob_match("a?c", "abc"));
    assert_true(glob_match("*a*b", "xxaxxbxb"));
    assert_false(glob_match("a?c", "ac"));
    assert_false(glob_match("", "x"));
    assert_false(glob_match("a*b", "a"));
    assert_false(glob_match("[ab]", "a"));
}

static void wire_bytes(void **state)
{
    static const uint8_t want[] = {1, 2,    1,    4,   3,   2,   1,   8,   7,   6, 5, 4, 3, 2,
                                   1, 0xfe, 255,  255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0,
                                   0, 0xf8, 0x3f, 2,   0,   0,   0,   'h', 'i', 0, 0, 0, 0};
    struct buf b = BUF_INIT;

    (void)state;
    put_u8(&b, 1);
    put_u16(&b, 0x0102);
    put_u32(&b, 0x01020304);
    put_u64(&b, 0x0102030405060708);
    put_i64(&b, -2);
    put_f64(&b, 1.5);
    put_str(&b, "hi");
    put_str(&b, NULL);
    assert_int_equal(b.len, sizeof want);
    assert_memory_equal(b.data, want, sizeof want);
    /* Whole, and cut at every length: never done, never beyond the end. */
    for (size_t n = 0; n <= b.len; n++) {
        uint8_t *copy = memcpy(xmalloc(n), b.data, n);
        struct reader r = reader_of(copy, n);
        char *hi, *none;

        get_u8(&r);
        get_u16(&r);
        get_u32(&r);
        get_u64(&r);
        get_i64(&r);
        get_f64(&r);
        hi = get_str(&r);
        none = get_str(&r);
        assert_int_equal(reader_done(&r), n == b.len);
        if (n == b.len) {
            assert_string_equal(hi, "hi");
            assert_string_equal(none, "");
        }
        free(hi);
        free(none);
        free(copy);
    }
    buf_clear(&b);
}

static void wire_refuses(void **state)
{
    struct reader r = reader_of("\xff\xff\xff\xffx", 5);
    uint32_t n = 7;
    char *s;

    (void)state;
    assert_null(get_bytes(&r, &n));
    assert_int_equal(n, 0);
    assert_int_equal(get_u8(&r), 0); /* stays failed */
    assert_true(r.failed);
    r = reader_of("\3\0\0\0a\0b", 7);
    s = get_str(&r);
    assert_string_equal(s, "");
    assert_false(reader_done(&r));
    free(s);
    r = reader_of(NULL, 0);
    assert_true(reader_done(&r));
    r = reader_of("\1\2", 2);
    get_u8(&r);
    assert_false(reader_done(&r)); /* something is left */
}

/* 4,096 nodes of 8 ranks are one run; any other order survives as well; what does not fit is refused. */
static void wire_node_of(void **state)
{
    static const int odd[] = {0, 0, 1, 1, 2, 5, 4, 4, 4};
    int *many = xcalloc(32768, sizeof *many), *got;
    struct buf b = BUF_INIT;
    struct reader r;

    (void)state;
    for (int i = 0; i < 32768; i++)
        many[i] = i / 8;
    put_node_of(&b, many, 32768);
    assert_int_equal(b.len, 12);
    r = reader_of(b.data, b.len);
    got = get_node_of(&r, 32768);
    assert_true(reader_done(&r));
    assert_memory_equal(got, many, 32768 * sizeof *many);
    free(got);
    r = reader_of(b.data, b.len);
    assert_null(get_node_of(&r, 32767)); /* more ranks than the world has */
    assert_true(r.failed);
    r = reader_of(b.data, b.len);
    assert_null(get_node_of(&r, 32769)); /* fewer */
    free(many);
    buf_reset(&b);
    put_node_of(&b, odd, 9);
    r = reader_of(b.data, b.len);
    got = get_node_of(&r, 9);
    assert_true(reader_done(&r));
    assert_memory_equal(got, odd, sizeof odd);
    free(got);
    r = reader_of("\0\0\0\0\0\0\0\0\1\0\0\0", 12); /* a run of no nodes */
    assert_null(get_node_of(&r, 1));
    buf_clear(&b);
}

/* A message is one write of one line, whatever its length. */
static void messages(void **state)
{
    char text[8192], big[5000];
    int keep = dup(2), pipe_[2], saved;
    enum log_level level;
    ssize_t n;

    (void)state;
    assert_int_equal(pipe(pipe_), 0);
    dup2(pipe_[1], 2);
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    log_open("prog");
    errno = ENOENT;
    log_warn("a %d: %m", 7);
    saved = errno;
    log_debug("not seen");
    log_error("%s", big);
    dup2(keep, 2);
    close(keep);
    close(pipe_[1]);
    n = read(pipe_[0], text, sizeof text);
    close(pipe_[0]);
    assert_int_equal(saved, ENOENT);
    assert_true(n > 4000 && n < 5000 && text[n - 1] == '\n');
    assert_memory_equal(text, "prog: warning: a 7: No such file or directory\nprog: xxx", 55);
    assert_memory_equal(text + n - 4, "...\n", 4);
    assert_int_equal(log_level_parse("Critical", &level), 0);
    assert_int_equal(level, LOG_ERROR);
    assert_int_equal(log_level_parse("loud", &level), -1);
}

/* XXH3-64 of nothing under seed 0 is a published constant. */
static void hashes(void **state)
{
    struct hash_state *h = hash_create();
    char hex[17], text[1000];

    (void)state;
    assert_true(hash64("", 0) == 0x2d06800538d394c2u);
    for (int i = 0; i < 1000; i++)
        text[i] = (char)(i * 7);
    for (int i = 0; i < 1000; i += 100)
        hash_update(h, text + i, 100);
    assert_true(hash_value(h) == hash64(text, 1000));
    hash_destroy(h);
    hash_destroy(NULL);
    hash_hex(0xabc, hex);
    assert_string_equal(hex, "0000000000000abc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers),      cmocka_unit_test(json_text),
        cmocka_unit_test(errors),       cmocka_unit_test(whole_numbers),
        cmocka_unit_test(real_numbers), cmocka_unit_test(sizes_and_times),
        cmocka_unit_test(words),        cmocka_unit_test(globs),
        cmocka_unit_test(wire_bytes), cmocka_unit_test(wire_node_of),   cmocka_unit_test(wire_refuses),
        cmocka_unit_test(hashes),       cmocka_unit_test(messages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
