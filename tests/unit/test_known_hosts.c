/* known_hosts files as ssh-keygen and ssh-keyscan write them; the hashed lines were made by ssh-keygen -H. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/known_hosts.h"
#include "launcher/ssh_trust.h"

#include <stdio.h>
#include <string.h>

#define ED "AAAAC3NzaC1lZDI1NTE5AAAAIISJM2S/61SgWKJTrSPwu3JeptQeFZgynmoHP8159BF9"
#define EC                                                                                           \
    "AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBGUQSmM31+CAl1aOT61+/OIIA2Fjb9CnWpJIOpGo0e+Hc" \
    "elKTSdlCHtakKBS//LbtGWLOm9IsZu2aTi72p6DIS8="
#define OTHER "AAAAC3NzaC1lZDI1NTE5AAAAIGSJM2S/61SgWKJTrSPwu3JeptQeFZgynmoHP8159BF9"
#define T_ED "ssh-ed25519"
#define T_EC "ecdsa-sha2-nistp256"

static struct known_hosts *read_text(const char *text, struct buf *notes)
{
    struct known_hosts *k = known_hosts_create();

    known_hosts_add(k, "kh", text, strlen(text), notes);
    return k;
}

/* The verdict, and the line that decided (0: none). */
static enum known_status judge(struct known_hosts *k, const char *host, int port, const char *type,
                               const char *blob, int *line)
{
    struct known_set set = {0};
    const struct known_key *at, *at_check;
    enum known_status s;
    int bare;

    s = known_hosts_check(k, host, port, type, blob, &at_check);
    known_hosts_find(k, host, port, &set, &bare);
    assert_int_equal(known_set_check(&set, bare, type, blob, &at), s);
    assert_ptr_equal(at, at_check);
    *line = at ? at->line : 0;
    known_set_clear(&set);
    return s;
}

#define JUDGE(k, host, port, type, blob, status, want_line)                \
    do {                                                                   \
        int line_;                                                         \
        assert_int_equal(judge(k, host, port, type, blob, &line_), status); \
        assert_int_equal(line_, want_line);                                \
    } while (0)

static void test_plain(void **state)
{
    struct known_hosts *k = read_text("# comment\n\nn1,10.0.0.1 " T_ED " " ED " me@here\n[n2]:2222 " T_EC
                                      " " EC "\nn1 " T_EC " " EC "\r\nN3 " T_ED " " ED, NULL);

    JUDGE(k, "n1", 22, T_ED, ED, KNOWN_OK, 3);
    JUDGE(k, "10.0.0.1", 22, T_ED, ED, KNOWN_OK, 3);
    JUDGE(k, "N1", 22, T_EC, EC, KNOWN_OK, 5);
    JUDGE(k, "n3", 22, T_ED, ED, KNOWN_OK, 6);
    JUDGE(k, "n1", 22, T_ED, OTHER, KNOWN_CHANGED, 3);
    JUDGE(k, "n1", 22, T_EC, OTHER, KNOWN_CHANGED, 5);
    JUDGE(k, "n4", 22, T_ED, ED, KNOWN_UNKNOWN, 0);
    JUDGE(k, "n2", 2222, T_EC, EC, KNOWN_OK, 4);
    JUDGE(k, "n2", 2222, T_ED, ED, KNOWN_CHANGED, 4); /* a type that is not on record */
    JUDGE(k, "n2", 22, T_EC, EC, KNOWN_UNKNOWN, 0);
    /* another port falls back on the bare name: its key proves the host, its absence proves nothing */
    JUDGE(k, "n1", 2222, T_ED, ED, KNOWN_OK, 3);
    JUDGE(k, "n1", 2222, T_ED, OTHER, KNOWN_UNKNOWN, 0);
    known_hosts_destroy(k);
}

static void test_hashed(void **state)
{
    struct known_hosts *k = read_text(
        "|1|lKfM93ybhhDvC8d0am05sUWt004=|Niq60ltRKQuSsq++3Z329Qsh8ng= " T_ED " " ED "\n"
        "|1|UR38YOiGBPGFZcAXvnCrlVAeFPQ=|AD+6F1FEnAyVFYRWkE9ALN6dBdE= " T_ED " " ED "\n"
        "|1|z/wSs4k1K+jgUG16hRznt6MATLw=|M1GkIKbggxShES4oTnbPnoMJDzc= " T_EC " " EC "\n", NULL);

    JUDGE(k, "node7.example", 22, T_ED, ED, KNOWN_OK, 1);
    JUDGE(k, "10.1.2.3", 22, T_ED, ED, KNOWN_OK, 2);
    JUDGE(k, "gate", 2222, T_EC, EC, KNOWN_OK, 3);
    JUDGE(k, "gate", 2222, T_EC, OTHER, KNOWN_CHANGED, 3);
    JUDGE(k, "gate", 22, T_EC, EC, KNOWN_UNKNOWN, 0);
    known_hosts_destroy(k);
}

static void test_patterns_and_markers(void **state)
{
    struct buf notes = BUF_INIT;
    struct known_hosts *k = read_text("*.cluster,!bad.cluster " T_ED " " ED "\n"
                                      "@revoked * " T_ED " " OTHER "\n"
                                      "@cert-authority *.x " T_ED " " ED "\n"
                                      "n9 " T_ED " not*base64\n"
                                      "n9\n"
                                      "|1|short|x " T_ED " " ED "\n"
                                      "n8 " T_ED " " OTHER "\n", &notes);

    JUDGE(k, "a.cluster", 22, T_ED, ED, KNOWN_OK, 1);
    JUDGE(k, "bad.cluster", 22, T_ED, ED, KNOWN_UNKNOWN, 0);
    JUDGE(k, "n8", 22, T_ED, OTHER, KNOWN_REVOKED, 2);
    JUDGE(k, "a.x", 22, T_ED, ED, KNOWN_UNKNOWN, 0);
    JUDGE(k, "n9", 22, T_ED, ED, KNOWN_UNKNOWN, 0);
    assert_non_null(strstr(notes.data, "kh:3: @cert-authority"));
    assert_non_null(strstr(notes.data, "kh:4: "));
    assert_non_null(strstr(notes.data, "kh:5: "));
    assert_non_null(strstr(notes.data, "kh:6: "));
    assert_null(strstr(notes.data, "kh:7: "));
    buf_clear(&notes);
    known_hosts_destroy(k);
}

static void test_many(void **state)
{
    struct buf text = BUF_INIT;
    struct known_hosts *k;

    for (int i = 0; i < 5000; i++)
        buf_addf(&text, "node%d " T_ED " %s\n", i, i == 4321 ? OTHER : ED);
    k = read_text(text.data, NULL);
    for (int i = 0; i < 5000; i++) {
        char host[16];
        snprintf(host, sizeof host, "node%d", i);
        JUDGE(k, host, 22, T_ED, ED, i == 4321 ? KNOWN_CHANGED : KNOWN_OK, i + 1);
    }
    buf_clear(&text);
    known_hosts_destroy(k);
}

static void test_algorithms(void **state)
{
    struct known_hosts *k = read_text("n1 ssh-rsa " ED "\nn2 " T_EC " " EC "\n", NULL);
    struct known_set set = {0};
    struct buf out = BUF_INIT;
    int bare;

    known_hosts_find(k, "n1", 22, &set, &bare);
    known_set_algorithms(&set, &out);
    assert_string_equal(out.data, "rsa-sha2-512,rsa-sha2-256,ssh-ed25519,ecdsa-sha2-nistp256,"
                                  "ecdsa-sha2-nistp384,ecdsa-sha2-nistp521");
    known_set_clear(&set);
    buf_clear(&out);
    known_hosts_destroy(k);
}

static void test_words(void **state)
{
    struct known_hosts *k = read_text("n1 " T_ED " " OTHER "\n", NULL);
    struct ssh_target t = {.name = "w", .host = "n1", .key_name = "n1", .port = 22, .known = k,
                           .known_file = "/k/known_hosts"};
    struct err e = ERR_INIT;

    assert_int_equal(ssh_target_trust(&t, T_ED, OTHER, "SHA256:x", &e), 0);
    assert_int_equal(ssh_target_trust(&t, T_ED, ED, "SHA256:abc", &e), -1);
    assert_int_equal(e.code, ERR_NODE_AUTH);
    assert_non_null(strstr(e.text, "kh:1"));
    assert_non_null(strstr(e.text, "SHA256:abc"));
    assert_null(strstr(e.text, ">>"));
    t.host = t.key_name = "n5", t.port = 2200;
    assert_int_equal(ssh_target_trust(&t, T_ED, ED, "SHA256:abc", &e), -1);
    assert_non_null(strstr(e.text, "ssh-keyscan -p 2200 n5 >> /k/known_hosts"));
    t.jump = "gate"; /* ssh-keyscan does not get there: the line itself */
    assert_int_equal(ssh_target_trust(&t, T_ED, ED, "SHA256:abc", &e), -1);
    assert_non_null(strstr(e.text, "echo '[n5]:2200 " T_ED " " ED "' >> /k/known_hosts"));
    known_hosts_destroy(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),      cmocka_unit_test(test_hashed),
        cmocka_unit_test(test_patterns_and_markers), cmocka_unit_test(test_many),
        cmocka_unit_test(test_algorithms), cmocka_unit_test(test_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
