/* The hostfile's grammar, its errors, the sources, and printing. Expected values are written by hand. */
#include "hostfile/hostfile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* Every host as "user@name:port=DEVICES/max" with what is not given left out, joined by blanks; slots
 * are 0..n-1 always. "!" and the text when refused. */
static char *show(struct hosts *h, int rc, struct err *err)
{
    struct buf b = BUF_INIT;

    if (rc) {
        assert_int_equal(h->n, 0);
        buf_addf(&b, "!%s", err->text);
        return buf_detach(&b);
    }
    for (int i = 0; i < h->n; i++) {
        const struct host *host = &h->host[i];

        buf_addf(&b, "%s%s%s%s", i ? " " : "", host->user ? host->user : "", host->user ? "@" : "",
                 host->name);
        if (host->port)
            buf_addf(&b, ":%d", host->port);
        for (int s = 0; s < host->nslots; s++) {
            assert_int_equal(host->slot[s], s);
            buf_addf(&b, "%s%d", s ? "," : "=", host->device[s]);
        }
        if (host->max_slots)
            buf_addf(&b, "/%d", host->max_slots);
    }
    hosts_clear(h);
    return buf_detach(&b);
}

static char *parse(const char *text, size_t len)
{
    struct hosts h = {0};
    struct err err = ERR_INIT;
    int rc = hostfile_parse(&h, "F", text, len, &err);

    return show(&h, rc, &err);
}

static void test_grammar(void **state)
{
    static const char *const want[][2] = {
        {"w1 slots=2\nw2 slots=1\n", "w1=0,1 w2=0"},
        {"w2 slots=1\nw1 slots=1", "w2=0 w1=0"}, /* order kept; no newline at the end */
        {"# head\n\n  \t\nw1\tslots=2 # tail\n", "w1=0,1"},
        {"w1 slots=2#tail\r\nw2:3\r\n", "w1=0,1 w2=0,1,2"},
        {"\xef\xbb\xbfw1 slots=1\n", "w1=0"},
        {"w1\n", "w1=0"},
        {"w1 slots=2 max_slots=4\nw2 max-slots=2 slots=2\n", "w1=0,1/4 w2=0,1/2"},
        {"ann@w1 port=2222\n", "ann@w1:2222=0"},
        {"ann@w1:2 port=22\n", "ann@w1:22=0,1"},
        {"w1 slots=4 devices=4,5,6,7\n", "w1=4,5,6,7"},
        {"w1 devices=4-6,0\n", "w1=4,5,6,0"},
        {"n[09-10,20] slots=1\n", "n09=0 n10=0 n20=0"},
        {"n[1-2]:2\nm1 slots=1\n", "n1=0,1 n2=0,1 m1=0"},
        {"a,b slots=1\n", "a=0 b=0"},
        {"[::1]\n[fe80::1%eth0]:2 port=7\n", "::1=0 fe80::1%eth0:7=0,1"},
        {"10.0.0.1:1\n", "10.0.0.1=0"},
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char *got = parse(want[i][0], strlen(want[i][0]));

        assert_string_equal(got, want[i][1]);
        free(got);
    }
}

static void test_refused(void **state)
{
    /* text, where, a word of the reason, a word of the remedy */
    static const char *const want[][4] = {
        {"w1 slots=4abc\n", "F:1:10: ", "\"4abc\"", "whole number"},
        {"w1 slots=4.5\n", "F:1:10: ", "\"4.5\"", "whole number"},
        {"w1 slots=0\n", "F:1:10: ", "\"0\"", "from 1 to 65536"},
        {"w1 slots=-1\n", "F:1:10: ", "\"-1\"", "from 1"},
        {"w1 slots=+1\n", "F:1:10: ", "\"+1\"", "from 1"},
        {"w1 slots=\n", "F:1:10: ", "\"\"", "from 1"},
        {"w1 slots=65537\n", "F:1:10: ", "65537", "65536"},
        {"w1 slots=99999999999999999999999999\n", "F:1:10: ", "9999", "65536"},
        {"w1 slots = 4\n", "F:1:9: ", "blank", "slots=N"},
        {"w1 slots =4\n", "F:1:9: ", "blank", "slots=N"},
        {"w1 slots= 4\n", "F:1:10: ", "blank", "slots=N"},
        {"w1 slot=4\n", "F:1:4: ", "unknown word", "did you mean slots="},
        {"w1 4\n", "F:1:4: ", "unknown word", "slots=, max_slots="},
        {"w1 slots=1 slots=2\n", "F:1:12: ", "twice", "keep one"},
        {"w1:2 slots=2\n", "F:1:6: ", "twice", "keep one"},
        {"w1:x\n", "F:1:4: ", "\"x\"", "whole number"},
        {"w1 port=65536\n", "F:1:9: ", "65536", "65535"},
        {"w1 slots=4 max_slots=2\n", "F:1:1: ", "below", "raise"},
        {"w1 slots=2 devices=4\n", "F:1:1: ", "1 device for 2 slots", "one device per slot"},
        {"w1 devices=4,4\n", "F:1:14: ", "twice", "devices=4,5"},
        {"w1 devices=4,x\n", "F:1:14: ", "no number", "0-3,5"},
        {"w1 devices=65536\n", "F:1:12: ", "65535", "device ids"},
        {"w1\nw2\nW1\n", "F:3:1: ", "line 1", "once"},
        {"n[1-2]\nn2\n", "F:2:1: ", "\"n2\"", "once"},
        {"w1,w1\n", "F:1:1: ", "line 1", "once"},
        {"[::1]\n[0:0::1]\n", "F:2:1: ", "line 1", "once"},
        {"::1\n", "F:1:1: ", "brackets", "[::1]"},
        {"[::g]\n", "F:1:1: ", "no IPv6", "brackets"},
        {"[::1\n", "F:1:1: ", "no IPv6", "brackets"},
        {"[::1]x\n", "F:1:6: ", "behind the address", "SLOTS"},
        {"@w1\n", "F:1:1: ", "no user name", "user@host"},
        {"a$b@w1\n", "F:1:2: ", "no user name", "user@host"},
        {"-oX@w1\n", "F:1:1: ", "no user name", "user@host"},
        {"n[1-3 slots=2\n", "F:1:2: ", "never closed", "']'"},
        {"  n]\n", "F:1:4: ", "without a '['", "n]"},
        {"w1 slots=2\n\x01\n", "F:2:1: ", "0x01", "Remove"},
        {"\xff\xfew\n", "F: ", "UTF-16", "UTF-8"},
        {"# nothing\n\n", "F: ", "no host", "slots=8"},
        {"", "F: ", "no host", "slots=8"},
        {"n[1-65536] slots=17\n", "F:1:1: ", "slots in all", "lower"},
        {"a[1-65536]\nb\n", "F:2:1: ", "more than 65536 hosts", "split"},
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char *got = parse(want[i][0], strlen(want[i][0]));

        if (got[0] != '!' || strncmp(got + 1, want[i][1], strlen(want[i][1])) != 0 ||
            !strstr(got, want[i][2]) || !strstr(got, want[i][3]) || strchr(got, '\n'))
            fail_msg("\"%s\" gave: %s", want[i][0], got);
        free(got);
    }
}

static void test_all_errors_at_once(void **state)
{
    static const char text[] = "w1 slots=x prt=2\nw2\nw3 slots=0\nw2\n";
    char *got = parse(text, sizeof text - 1);
    int lines = 1;

    for (char *c = got; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 4);
    assert_non_null(strstr(got, "!F:1:10: "));
    assert_non_null(strstr(got, "\nF:1:12: "));
    assert_non_null(strstr(got, "\nF:3:10: "));
    assert_non_null(strstr(got, "\nF:4:1: "));
    free(got);
}

static void test_many_errors_are_counted(void **state)
{
    struct buf b = BUF_INIT;
    char *got;
    int lines = 1, more = 0;
    const char *last;

    for (int i = 0; i < 1000; i++)
        buf_addf(&b, "w%d slots=0\n", i);
    got = parse(b.data, b.len);
    for (char *c = got; *c; c++)
        lines += *c == '\n';
    last = strrchr(got, '\n');
    assert_int_equal(sscanf(last, "\n... and %d more", &more), 1);
    assert_int_equal(more + lines - 1, 1000);
    free(got);
    buf_clear(&b);
}

static void test_nul_byte(void **state)
{
    char *got = parse("w1\0 slots=1\n", 12);

    assert_non_null(strstr(got, "!F:1:3: a byte 0x00"));
    free(got);
}

static char *source(const char *spec)
{
    struct hosts h = {0};
    struct err err = ERR_INIT;
    int rc = hosts_source(&h, spec, &err);

    if (!rc)
        assert_string_equal(h.source, spec);
    return show(&h, rc, &err);
}

static void test_sources(void **state)
{
    static const char *const want[][2] = {
        {"local", "localhost=0"},
        {"local:3", "localhost=0,1,2"},
        {"local:1x2", "localhost=0,1"},
        {"local:2x1", "local0=0 local1=1"},
        {"local:2x2", "local0=0,1 local1=2,3"},
        {"sim:2x2", "sim1=0,1 sim2=0,1"},
        {"sim:10x1", "sim01=0 sim02=0 sim03=0 sim04=0 sim05=0 sim06=0 sim07=0 sim08=0 sim09=0 sim10=0"},
    };
    static const char *const bad[] = {"local:",    "local:0", "local:x",    "local:2x", "local:2x1x1",
                                      "local:-1",  "sim:",    "sim:4",      "sim:0x1",  "sim:4x0",
                                      "sim:65537x1", "sim:65536x65536", "local:1.5"};

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char *got = source(want[i][0]);

        assert_string_equal(got, want[i][1]);
        free(got);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *got = source(bad[i]);

        if (got[0] != '!' || !strstr(got, bad[i]) || !strstr(got, "write"))
            fail_msg("\"%s\" gave: %s", bad[i], got);
        free(got);
    }
}

static void check_file_error(const char *path, const char *why)
{
    struct hosts h = {0};
    struct err err = ERR_INIT;

    assert_int_equal(hosts_source(&h, path, &err), -1);
    assert_int_equal(err.code, ERR_INPUT_FILE);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, why));
}

static void test_files(void **state)
{
    char dir[] = "/tmp/ds-hostfile-XXXXXX";
    char *path, *got;
    FILE *f;

    assert_non_null(mkdtemp(dir));
    check_file_error(dir, "folder");
    path = xasprintf("%s/hosts", dir);
    check_file_error(path, "no such file");
    f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    check_file_error(path, "empty");
    f = fopen(path, "w");
    fputs("w1 slots=2\nw2\n", f);
    fclose(f);
    got = source(path);
    assert_string_equal(got, "w1=0,1 w2=0");
    free(got);
    if (geteuid() != 0) {
        assert_int_equal(chmod(path, 0), 0);
        check_file_error(path, "Permission denied");
    }
    unlink(path);
    rmdir(dir);
    free(path);
}

/* The example that users copy: what its comments promise. */
static void test_example(void **state)
{
    const char *top = getenv("top_srcdir");
    char *path = xasprintf("%s/templates/hostfile.example", top ? top : ".");
    struct hosts h = {0};
    struct err err = ERR_INIT;
    int rc = hosts_source(&h, path, &err);
    char *got = show(&h, rc, &err);

    assert_string_equal(got, "node01=0,1,2,3 node02=0,1,2,3 rack1n01=0,1,2,3,4,5,6,7 "
                             "rack1n02=0,1,2,3,4,5,6,7 rack2n01=0,1,2,3,4,5,6,7 "
                             "rack2n02=0,1,2,3,4,5,6,7 ann@node03:2222=0,1 node04=4,5,6,7 "
                             "fd00::17=0,1,2,3");
    free(got);
    free(path);
}

static void test_print(void **state)
{
    static const char text[] = "ann@n01 slots=4 devices=4,5,6,7 port=2222\nn02\n[::1]:2\n";
    struct hosts h = {0};
    struct err err = ERR_INIT;
    struct buf out = BUF_INIT;

    assert_int_equal(hostfile_parse(&h, "F", text, sizeof text - 1, &err), 0);
    assert_int_equal(hosts_total(&h), 7);
    hosts_print_json(&h, &out);
    assert_string_equal(out.data,
                        "{\"hosts\":[{\"name\":\"n01\",\"slots\":[0,1,2,3],\"devices\":[4,5,6,7],"
                        "\"user\":\"ann\",\"port\":2222},{\"name\":\"n02\",\"slots\":[0],"
                        "\"devices\":[0],\"user\":null,\"port\":null},{\"name\":\"::1\","
                        "\"slots\":[0,1],\"devices\":[0,1],\"user\":null,\"port\":null}]}\n");
    buf_reset(&out);
    hosts_print_list(&h, &out);
    assert_string_equal(out.data, "n[01-02],[::1]");
    buf_reset(&out);
    hosts_print_table(&h, &out);
    assert_string_equal(out.data, "HOST  SLOTS  IDS  DEVICES  USER  PORT\n"
                                  "n01   4      0-3  4-7      ann   2222\n"
                                  "n02   1      0    0        -     -\n"
                                  "::1   2      0-1  0-1      -     -\n"
                                  "3 hosts, 7 slots\n");
    buf_clear(&out);
    hosts_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammar),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_all_errors_at_once),
        cmocka_unit_test(test_many_errors_are_counted),
        cmocka_unit_test(test_nul_byte),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_example),
        cmocka_unit_test(test_print),
    };

    return cmocka_run_group_tests_name("hostfile", tests, NULL, NULL);
}
