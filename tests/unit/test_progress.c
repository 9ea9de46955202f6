/* Metric objects, the progress line, and the small JSON reader under both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/jsonget.h"
#include "launcher/progress.h"

#include <string.h>

static void json(void **state)
{
    static const char *const good[] = {"{}", " {\"a\":1} ", "{\"a\":[1,{\"b\":\"}\"}],\"c\":null}",
                                       "{\"a\\\"\":true}"};
    static const char *const bad[] = {"", "1", "{", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{} x",
                                      "{\"a\":\"\n\"}", "{a:1}", "{\"a\":1 \"b\":2}"};
    static const char text[] = "{\"x\":{\"step\":9},\"step\" : 12,\"t\":\"a\\n\\u00e9\\\"\",\"loss\":2.5e-1}";
    struct buf b = BUF_INIT;
    double v;
    size_t i;
    (void)state;

    for (i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(jsonget_valid(good[i], strlen(good[i])), 1);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(jsonget_valid(bad[i], strlen(bad[i])), 0);
    assert_int_equal(jsonget_number(text, strlen(text), "step", &v), 0);
    assert_true(v == 12);
    assert_int_equal(jsonget_number(text, strlen(text), "loss", &v), 0);
    assert_true(v == 0.25);
    assert_int_equal(jsonget_number(text, strlen(text), "t", &v), -1);
    assert_int_equal(jsonget_number(text, strlen(text), "ste", &v), -1);
    assert_int_equal(jsonget_string(text, strlen(text), "t", &b), 0);
    assert_string_equal(buf_str(&b), "a\n\xc3\xa9\"");
    buf_clear(&b);
}

static void cut_short(void **state)
{
    static const char text[] = "{\"step\":12,\"t\":\"ab\",\"l\":[1,2]}";
    size_t n;
    (void)state;

    for (n = 0; n < sizeof text - 1; n++)
        assert_int_equal(jsonget_valid(text, n), 0);
}

static void take(struct progress *p, const char *s, int64_t now, int want)
{
    assert_int_equal(progress_take(p, s, strlen(s), now), want);
}

/* A step whose loss is no number is a step: it is shown, and counted where it was left out. */
static void not_finite(void **state)
{
    struct progress p = PROGRESS_INIT;
    struct buf b = BUF_INIT;
    (void)state;

    take(&p, "{\"step\":1,\"tokens\":10,\"loss\":5.5,\"max_steps\":2,\"step_ms\":500}", 1000, 1);
    take(&p, "{\"step\":2,\"tokens\":20,\"loss\":null,\"max_steps\":2,\"step_ms\":500,"
             "\"skipped\":true,\"skipped_steps\":1}", 2000, 1);
    take(&p, "{\"step\":2,\"valid_loss\":4.5}", 2000, 2);
    progress_line(&p, 1, 0, &b);
    assert_string_equal(buf_str(&b), "step 2/2  loss nan  1 skipped  valid 4.5000  10 tok/s  1 node");
    assert_true(p.first_loss == 5.5);
    buf_clear(&b);
}

static void line(void **state)
{
    struct progress p = PROGRESS_INIT;
    struct buf b = BUF_INIT;
    (void)state;

    take(&p, "{\"step\":1,\"tokens\":1000,\"loss\":5.5,\"max_steps\":100,\"tokens_per_s\":41234,"
             "\"step_ms\":500}", 1000, 1);
    take(&p, "{\"step\":2,\"tokens\":2000,\"loss\":5,\"max_steps\":100,\"tokens_per_s\":41234,"
             "\"step_ms\":500}", 2000, 1);
    take(&p, "{\"step\":3,\"tokens\":3000,\"loss\":4.25,\"max_steps\":100,\"tokens_per_s\":41234,"
             "\"step_ms\":500}", 3000, 1);
    take(&p, "{\"step\":3,\"valid_loss\":4.5}", 3000, 2);
    take(&p, "nonsense", 3000, -1);
    progress_line(&p, 2, 0, &b);
    /* 97 steps are left at 1 s and 1000 tokens each, measured between the first and the last; what a step
     * says about itself jumps too much */
    assert_string_equal(buf_str(&b),
                        "step 3/100  loss 4.2500  valid 4.5000  1.0k tok/s  1m37s left  2 nodes");
    assert_true(p.first_loss == 5.5);
    assert_true(progress_rate(&p) == 1000);
    buf_reset(&b);
    progress_valid(&p, &b);
    assert_string_equal(buf_str(&b), "step 3/100  valid 4.5000");
    buf_reset(&b);
    take(&p, "{\"step\":4,\"tokens\":4000,\"loss\":4,\"max_steps\":100,\"step_ms\":500}", 4000, 1);
    progress_line(&p, 2, 0, &b); /* a later step has no validation loss */
    assert_string_equal(buf_str(&b), "step 4/100  loss 4.0000  1.0k tok/s  1m36s left  2 nodes");
    buf_reset(&b);
    take(&p, "{\"step\":3,\"tokens\":3000,\"loss\":4.25,\"max_steps\":100,\"step_ms\":500}", 5000, 1);
    progress_line(&p, 1, 10, &b);
    assert_string_equal(buf_str(&b), "step 3/100");
    buf_clear(&b);
}

static void due(void **state)
{
    struct progress p = PROGRESS_INIT;
    (void)state;

    take(&p, "{\"step\":1,\"loss\":5}", 1000000, 1);
    assert_int_equal(progress_due(&p, 10, 1000000), 1);
    take(&p, "{\"step\":2,\"loss\":5}", 1000001, 1);
    assert_int_equal(progress_due(&p, 10, 1000001), 0);
    take(&p, "{\"step\":10,\"loss\":5}", 1000002, 1);
    assert_int_equal(progress_due(&p, 10, 1000002), 1);
    take(&p, "{\"step\":12,\"loss\":5}", 1070000, 1);
    assert_int_equal(progress_due(&p, 10, 1070000), 1); /* a minute went by */
}

static void counts(void **state)
{
    static const struct {
        double v;
        const char *text;
    } rows[] = {{0, "0"}, {7, "7"}, {999, "999"}, {1000, "1.0k"}, {41234, "41.2k"}, {999600, "1.0M"},
                {123456, "123k"}};
    struct buf b = BUF_INIT;
    size_t i;
    (void)state;

    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        buf_reset(&b);
        progress_count(rows[i].v, &b);
        assert_string_equal(buf_str(&b), rows[i].text);
    }
    buf_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(json), cmocka_unit_test(cut_short),
                                       cmocka_unit_test(line), cmocka_unit_test(due),
                                       cmocka_unit_test(counts), cmocka_unit_test(not_finite)};

    return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
