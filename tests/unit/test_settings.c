/* Settings: what a file says reaches the struct, and what it says wrongly is told with its line. */
#include "engine/base/settings.h"
#include "tests/unit/try_settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct conf {
    int on, mode;
    int64_t count, bytes, wait_ms;
    double rate;
    char *name;
    struct setting_list betas;
};
#define F(x) offsetof(struct conf, x)

static const struct setting table[] = {
    {"on", SETTING_BOOL, F(on), "false", NULL, "", SETTING_IDENTITY, "a switch"},
    {"zero.count", SETTING_INT, F(count), "3", "0..10", "things", 0, "how many"},
    {"zero.bytes", SETTING_SIZE, F(bytes), "64Ki", "1..", "bytes", 0, "how much"},
    {"zero.wait", SETTING_MS, F(wait_ms), "2m", "0..", "", 0, "how long"},
    {"opt.params.rate", SETTING_F64, F(rate), "0.1", "(0..1", "", SETTING_IDENTITY, "how fast"},
    {"opt.params.betas", SETTING_LIST, F(betas), "0.9, 0.999", "0..1) x2", "", SETTING_IDENTITY,
     "decays"},
    {"opt.mode", SETTING_ENUM, F(mode), "slow", "slow|fast|auto", "", 0, "which way"},
    {"name", SETTING_STR, F(name), NULL, NULL, "", 0, "a name"},
    {"rate", SETTING_STR, 0, "opt.params.rate", NULL, "", SETTING_ALIAS, ""},
    {"scale", SETTING_F64, 0, "1.0", NULL, "", SETTING_REFUSED, "use opt.params.rate"},
    {"log", SETTING_BOOL, 0, "false", NULL, "", SETTING_IGNORED, "see the log"},
    {"fp16", SETTING_STR, 0, NULL, NULL, "", SETTING_PREFIX | SETTING_REFUSED, "use bf16"},
    {"board", SETTING_STR, 0, NULL, NULL, "", SETTING_PREFIX | SETTING_IGNORED, ""},
};
#define N ((int)(sizeof table / sizeof *table))

static struct conf conf;

static const char *apply(const char *text)
{
    return try_settings(table, N, &conf, "mine.", text);
}

static void defaults(void **state)
{
    (void)state;
    assert_string_equal(apply("# nothing\n"), "");
    assert_true(!conf.on && conf.count == 3 && conf.bytes == 65536 && conf.wait_ms == 120000);
    assert_true(conf.rate == 0.1 && conf.mode == 0 && !conf.name);
    assert_true(conf.betas.n == 2 && conf.betas.v[0] == 0.9 && conf.betas.v[1] == 0.999);
    assert_false(settings_given(&set, "zero.count"));
}

static void check_values(void)
{
    assert_true(conf.on && conf.count == 7 && conf.bytes == 500000000 && conf.wait_ms == 1500);
    assert_true(conf.rate == 0.0003 && conf.mode == 1);
    assert_true(conf.betas.n == 2 && conf.betas.v[0] == 0 && conf.betas.v[1] == 0.95);
    assert_string_equal(conf.name, "a;b=c");
    assert_true(settings_given(&set, "zero.count") && settings_given(&set, "opt.params.rate"));
}

static void ini_forms(void **state)
{
    (void)state;
    assert_string_equal(
        apply("\xef\xbb\xbfon = yes ; a comment\r\n  # another\r\nname = a;b=c\r\n"
              "[zero] ; behind a section\r\ncount=7\r\nbytes: 5e8\r\nwait =1.5\r\n\r\n"
              "[opt]\r\nmode = FAST\r\n[opt.params]\r\nrate = 3e-4\r\nbetas = 0,0.95"),
        "");
    check_values();
}

static void json_forms(void **state)
{
    (void)state;
    assert_string_equal(
        apply(" {\"on\": true, \"name\": \"a;b=c\",\n"
              "\"zero\": {\"count\": 7, \"bytes\": 5e8, \"wait\": \"1500ms\"},\n"
              "\"opt\": {\"mode\": \"fast\", \"params\": {\"rate\": 3e-4, \"betas\": [0, 0.95]}}}"),
        "");
    check_values();
    assert_string_equal(
        apply("{\"zero\": {\"count\": \"auto\", \"wait\": null}, \"opt\": {\"mode\": \"auto\"}}"),
        "");
    assert_true(conf.count == 3 && !settings_given(&set, "zero.count") && conf.mode == 2);
}

static void long_values(void **state)
{
    struct buf text = BUF_INIT;
    char path[2001];

    (void)state;
    memset(path, 'p', 2000);
    path[2000] = 0;
    buf_addf(&text, "on = true\nname = %s ; tail\n[zero]\ncount = 5\n", path);
    assert_string_equal(apply(text.data), "");
    assert_string_equal(conf.name, path);
    assert_int_equal(conf.count, 5);
    buf_clear(&text);
    buf_addf(&text, "on = true\nname = %s%s%s\n", path, path, path);
    assert_string_equal(apply(text.data), "f:2: line longer than 4000 bytes");
    buf_clear(&text);
}

/* Each of inih's traps, and what a person may get wrong: file, line, sentence. */
static void ini_errors(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"on = true\non = false\n", "f:2: on is set twice; first at f:1"},
        {"[zero]\ncount = 1\n[opt]\nmode = slow\n[zero]\ncount = 2",
         "f:6: zero.count is set twice; first at f:2"},
        {"name = a\n  b\n",
         "f:2: begins with a blank; continuation lines are not supported, and keys "
         "and sections begin in the first column"},
        {"[zero\ncount=1\n", "f:1: the section header [zero has no ]"},
        {"[zero] count = 1\n", "f:1: text behind the section header: count = 1"},
        {"[ze ro]\n",
         "f:1: [ze ro] is not a section name (letters, digits, _ - . and at most 49 of them)"},
        {"on\n", "f:1: neither a [section] nor key = value: on"},
        {"= 1\n", "f:1: '' is not a setting's name"},
        {"a..b = 1\n", "f:1: 'a..b' is not a setting's name"},
        {"name = x # why\n",
         "f:1: a comment behind a value begins with ; (or give it a line of its own)"},
        {"name = a\001b\n", "f:1: has a control character (1) in it"},
        {"[zero]\ncount = 11\n",
         "f:2: zero.count = 11: expected a whole number in 0..10 (how many)"},
        {"[zero]\ncount = 1x\n",
         "f:2: zero.count = 1x: expected a whole number in 0..10 (how many)"},
        {"[zero]\ncount =\n", "f:2: zero.count = : expected a whole number in 0..10 (how many)"},
        {"[opt.params]\nrate = 0\n",
         "f:2: opt.params.rate = 0: expected a number in (0..1 (how fast)"},
        {"[opt.params]\nbetas = 0.9\n",
         "f:2: opt.params.betas = 0.9: expected numbers with commas between in 0..1) x2 (decays)"},
        {"[opt.params]\nbetas = 0.9, 1\n", "f:2: opt.params.betas = 0.9, 1: expected numbers with "
                                           "commas between in 0..1) x2 (decays)"},
        {"[opt]\nmode = medium\n",
         "f:2: opt.mode = medium: expected one of slow, fast, auto (which way)"},
        {"on = maybe\n", "f:1: on = maybe: expected true or false (a switch)"},
        {"[zero]\ncuont = 1\n", "f:2: unknown setting zero.cuont; did you mean zero.count?"},
        {"[opt]\nrate = 1\n", "f:2: unknown setting opt.rate; did you mean opt.params.rate?"},
        {"[opt]\nparams.rate = 1e-60\n",
         "f:2: opt.params.rate = 1e-60: expected a number in (0..1, and one that fp32 can hold (how fast)"},
        {"[opt]\nparams.rate = 0.99999999999\n", ""},
        {"[nowhere]\nxyzzy = 1\n",
         "f:2: unknown setting nowhere.xyzzy; ds-launch info --settings lists all"},
        {"[mine]\nanything = 1\n", ""},
        {"rate = 0.5\n[opt.params]\nrate = 0.5\n",
         "f:3: opt.params.rate is set twice: also as rate at f:1; keep one"},
        {"scale = 2\n", "f:1: scale = 2 is not supported, only 1.0: use opt.params.rate"},
        {"scale = 1\n", ""},
        {"[fp16]\nenabled = true\nloss_scale = 0\n",
         "f:2: fp16.enabled = true: section fp16 of DeepSpeed is not supported: use bf16"},
        {"[fp16]\nloss_scale = 0\nenabled = false\n", ""},
        {"on = x\n[zero]\ncount = -1\n",
         "f:1: on = x: expected true or false (a switch)\n"
         "f:3: zero.count = -1: expected a whole number in 0..10 (how many)"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(apply(cases[i].text), cases[i].want);
}

static void json_errors(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"{\n\"on\": true,\n\"on\": true}",
         "f:3: not valid JSON: duplicate object key near '\"on\"'"},
        {"{\"a\": \"x:\\\"{\",\n\"zero\": {\n\"cuont\": 1}}",
         "f:1: unknown setting a; ds-launch info --settings lists all\n"
         "f:3: unknown setting zero.cuont; did you mean zero.count?"},
        {"{\"board\": {\"x\": [1, {\"y\":\n{\"z\": 2}}]},\n\n\"on\": 7}",
         "f:4: on = 7: expected true or false (a switch)"},
        {"{\"a b\": {\"c\":\n1},\n\"on\": 7}", "f:1: 'a b' is not a setting's name"},
        {"{\"name\": \"a ; b\"}", "f:1: the value of name has a ; or # at its start or behind a "
                                  "blank: that begins a comment"},
        {"{\"name\": \"a\\nb\"}", "f:1: the value of name has a control character in it"},
        {"{\"name\": \" a\"}", "f:1: the value of name begins or ends with a blank"},
        {"{\"zero\": 3}", "f:1: unknown setting zero; ds-launch info --settings lists all"},
        {"{\"zero.count\": 3}", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(apply(cases[i].text), cases[i].want);
    assert_non_null(strstr(apply("{\"on\": true,}"), "f:1: not valid JSON: "));
}

static void warnings(void **state)
{
    (void)state;
    assert_string_equal(apply("log = true\n[board]\na = 1\nb = 2\n"), "");
    assert_string_equal(
        buf_str(&warn),
        "f:1: log has no effect here: see the log\nf:3: board.* has no effect here\n");
    assert_string_equal(apply("log = false\n[board]\nenabled = false\nb = 2\n"), "");
    assert_string_equal(buf_str(&warn), "");
}

static void no_text_files(void **state)
{
    struct settings_rows rows = {0};
    struct err err;

    (void)state;
    assert_int_equal(settings_read(&rows, "f", "on = 1\n\0", 8, &err), -1);
    assert_string_equal(err.text, "f:2: has a NUL byte: this is not a text file");
    assert_int_equal(settings_read_file(&rows, "/nonexistent/x", &err), -1);
    assert_string_equal(err.text, "/nonexistent/x: cannot be opened: No such file or directory; "
                                  "give the path of a file that can be read");
    assert_int_equal(settings_read_file(&rows, "/dev/null", &err), -1);
    assert_string_equal(err.text, "/dev/null: no settings in it");
    assert_int_equal(settings_read_file(&rows, "/", &err), -1);
    assert_string_equal(err.text, "/: cannot be read: Is a directory");
    assert_int_equal(settings_read_file(&rows, "/dev/zero", &err), -1);
    assert_string_equal(err.text, "/dev/zero: larger than 1 MiB: this is not a job file");
    assert_int_equal(rows.n, 0);
}

/* More errors than fit are counted. */
static void many_errors(void **state)
{
    struct buf text = BUF_INIT;
    const char *said;
    int lines = 1, more = -1;

    (void)state;
    for (int i = 0; i < 100; i++)
        buf_addf(&text, "unknown%d = 1\n", i);
    said = apply(text.data);
    for (const char *p = said; *p; p++)
        lines += *p == '\n';
    assert_int_equal(sscanf(strrchr(said, '\n'), "\n... and %d more", &more), 1);
    assert_int_equal(lines - 1 + more, 100);
    buf_clear(&text);
}

/* print, then read: the same rows. */
static void print_and_read(void **state)
{
    static const char *const paths[] = {"a", "s.b", "s.t.c", "s.d", "e"}, *const values[] = {
                                                                              "1", "x;y=z", "",
                                                                              "0.9, 0.95",
                                                                              "[no section]"};
    struct settings_rows rows = {0}, again = {0};
    struct buf text = BUF_INIT;
    struct err err;

    (void)state;
    for (int i = 0; i < 5; i++)
        settings_rows_add(&rows, paths[i], values[i], "here");
    settings_rows_add(&rows, "a", "2", "there"); /* replaces */
    assert_int_equal(rows.n, 5);
    settings_rows_print(&rows, &text);
    assert_int_equal(settings_read(&again, "g", text.data, text.len, &err), 0);
    assert_int_equal(again.n, 5);
    for (int i = 0; i < 5; i++) {
        int found = 0;

        for (int k = 0; k < 5; k++)
            if (strcmp(rows.row[i].path, again.row[k].path) == 0) {
                assert_string_equal(rows.row[i].value, again.row[k].value);
                found++;
            }
        assert_int_equal(found, 1);
    }
    assert_string_equal(rows.row[0].where, "there");
    settings_rows_clear(&rows);
    settings_rows_clear(&again);
    buf_clear(&text);
}

/* What travels to the ranks keeps each setting's place; what is written down does not carry it. */
static void shipped_rows_keep_their_place(void **state)
{
    struct settings_rows rows = {0}, again = {0};
    struct buf text = BUF_INIT;
    struct err err;

    settings_rows_add(&rows, "s.b", "1", "job.ini:12");
    settings_rows_add(&rows, "a", "2", "--set");
    settings_rows_ship(&rows, &text);
    assert_string_equal(text.data, ";@ --set\na = 2\n[s]\n;@ job.ini:12\nb = 1\n");
    buf_adds(&text, "c = 3\n"); /* the place is that of the next setting only */
    assert_int_equal(settings_read(&again, "g", text.data, text.len, &err), 0);
    assert_string_equal(again.row[0].where, "--set");
    assert_string_equal(again.row[1].where, "job.ini:12");
    assert_string_equal(again.row[2].where, "g:6");
    settings_rows_clear(&rows);
    settings_rows_clear(&again);
    buf_clear(&text);
}

/* Canonical text reads back, and the hash covers the identity rows alone, however they were
 * written. */
static void canonical(void **state)
{
    struct buf text = BUF_INIT;
    uint64_t h;

    (void)state;
    assert_string_equal(
        apply("[opt.params]\nrate = 0.30\nbetas = .5 , 0.25\n[zero]\nwait = 250ms\n"), "");
    for (int i = 0; i < 8; i++) {
        buf_addc(&text, i ? '|' : '<');
        settings_value(&set, i, &text);
    }
    assert_string_equal(text.data, "<false|3|65536|250ms|0.3|0.5, 0.25|slow|");
    buf_clear(&text);
    h = settings_hash(&set);
    apply("[opt.params]\nrate = 3e-1\nbetas = 0.5,0.25\n[zero]\ncount = 9\n");
    assert_true(settings_hash(&set) == h);
    apply("[opt.params]\nrate = 0.31\nbetas = 0.5,0.25\n");
    assert_false(settings_hash(&set) == h);
}

static void single_values(void **state)
{
    struct err err = ERR_INIT;

    (void)state;
    apply("on = true\n");
    assert_int_equal(settings_set(&set, "zero.count", "8", "--set", &err), 0);
    assert_true(conf.count == 8 && settings_given(&set, "zero.count"));
    assert_int_equal(settings_set(&set, "zero.count", "80", "--set", &err), -1);
    assert_string_equal(err.text,
                        "--set: zero.count = 80: expected a whole number in 0..10 (how many)");
    assert_int_equal(conf.count, 8);
    assert_int_equal(settings_set(&set, "name", "one", "--set", &err), 0);
    assert_int_equal(settings_set(&set, "name", "two", "--set", &err), 0);
    assert_string_equal(conf.name, "two");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),    cmocka_unit_test(ini_forms),
        cmocka_unit_test(json_forms),  cmocka_unit_test(long_values),
        cmocka_unit_test(ini_errors),  cmocka_unit_test(json_errors),
        cmocka_unit_test(warnings),    cmocka_unit_test(no_text_files),
        cmocka_unit_test(many_errors), cmocka_unit_test(print_and_read),
        cmocka_unit_test(shipped_rows_keep_their_place),
        cmocka_unit_test(canonical),   cmocka_unit_test(single_values),
    };

    return cmocka_run_group_tests(tests, NULL, clear_settings);
}
