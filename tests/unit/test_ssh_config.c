/* The ssh_config reader; expected values by ssh_config(5), several checked with ssh -G. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/ssh_config.h"

#include <stdlib.h>
#include <string.h>

#define SAME(a, b) assert_string_equal((a) ? (a) : "", (b) ? (b) : "")

/* Passing over the blocks of other hosts must not change what is found for this one. */
static int apply(struct ssh_config *c, const char *host, const char *text, struct err *e)
{
    struct ssh_config skimmed;
    int rc;

    ssh_config_init(c);
    rc = ssh_config_apply(c, host, "cfg", 1, text, strlen(text), NULL, e);
    if (rc)
        return rc;
    ssh_config_init(&skimmed);
    skimmed.skim = 1;
    assert_int_equal(ssh_config_apply(&skimmed, host, "cfg", 1, text, strlen(text), NULL, e), 0);
    SAME(skimmed.user, c->user);
    SAME(skimmed.hostname, c->hostname);
    SAME(skimmed.proxy_jump, c->proxy_jump);
    assert_int_equal(skimmed.port, c->port);
    assert_int_equal(skimmed.identity.n, c->identity.n);
    SAME(buf_str(&skimmed.notes), buf_str(&c->notes));
    ssh_config_clear(&skimmed);
    return 0;
}

static void test_first_value_wins(void **state)
{
    struct ssh_config c;
    struct err e = ERR_INIT;

    assert_int_equal(apply(&c, "n1",
                           "# all\nUser early\nHost n1 n2\n  HostName=10.0.0.1\n\tPort 2200\n  IdentityFile a\n"
                           "Host *\n  User late\n  Port 23\n  HostName no\n  IdentityFile \"b c\" # x\n"
                           "  IdentitiesOnly yes\n", &e), 0);
    assert_string_equal(c.user, "early");
    assert_string_equal(c.hostname, "10.0.0.1");
    assert_int_equal(c.port, 2200);
    assert_int_equal(c.identities_only, 1);
    assert_int_equal(c.identity.n, 2);
    assert_string_equal(c.identity.word[0], "a");
    assert_string_equal(c.identity.word[1], "b c");
    assert_int_equal(c.notes.len, 0);
    ssh_config_clear(&c);
}

static void test_negation(void **state)
{
    const char *text = "Host n* !n3\nUser a\nHost !n4\nUser never\n";
    struct ssh_config c;
    struct err e = ERR_INIT;

    assert_int_equal(apply(&c, "n1", text, &e), 0);
    assert_string_equal(c.user, "a");
    ssh_config_clear(&c);
    assert_int_equal(apply(&c, "n3", text, &e), 0);
    assert_null(c.user);
    ssh_config_clear(&c);
    assert_int_equal(apply(&c, "m1", text, &e), 0); /* a negation alone matches nothing */
    assert_null(c.user);
    ssh_config_clear(&c);
}

static void test_files_and_jump(void **state)
{
    struct ssh_config c;
    struct err e = ERR_INIT;

    assert_int_equal(apply(&c, "x",
                           "userknownhostsfile ~/a ~/b\nUserKnownHostsFile ~/c\nGlobalKnownHostsFile none\n"
                           "ProxyJump u@g1:2222,g2\nHostKeyAlias farm\nConnectTimeout 5\n"
                           "AddressFamily inet6\n", &e), 0);
    assert_int_equal(c.user_known_hosts.n, 2);
    assert_string_equal(c.user_known_hosts.word[1], "~/b");
    assert_int_equal(c.global_known_hosts.given, 1);
    assert_int_equal(c.global_known_hosts.n, 0);
    assert_string_equal(c.proxy_jump, "u@g1:2222,g2");
    assert_string_equal(c.host_key_alias, "farm");
    assert_int_equal(c.connect_timeout_ms, 5000);
    assert_int_equal(c.family, SSH_FAMILY_INET6);
    ssh_config_clear(&c);
}

static void test_notes(void **state)
{
    struct ssh_config c;
    struct err e = ERR_INIT;

    assert_int_equal(apply(&c, "n1",
                           "Host n1\nStrictHostKeyChecking accept-new\nProxyCommand nc %h %p\n"
                           "ServerAliveInterval 5\nHost n2\nCertificateFile x\n"
                           "Match user me\nUser matched\nMatch all\nUser yes\n", &e), 0);
    assert_non_null(strstr(c.notes.data, "cfg:2: StrictHostKeyChecking accept-new is taken as yes"));
    assert_non_null(strstr(c.notes.data, "cfg:3: ProxyCommand"));
    assert_null(strstr(c.notes.data, "ServerAlive"));
    assert_null(strstr(c.notes.data, "CertificateFile"));
    assert_non_null(strstr(c.notes.data, "cfg:7: Match"));
    assert_string_equal(c.user, "yes");
    ssh_config_clear(&c);
}

static void refuse(const char *text, const char *want)
{
    struct ssh_config c;
    struct err e = ERR_INIT;

    assert_int_equal(apply(&c, "n1", text, &e), -1);
    if (!strstr(e.text, want))
        fail_msg("%s: %s", text, e.text);
    ssh_config_clear(&c);
}

static void test_errors(void **state)
{
    refuse("Host n1\nPort 70000\n", "cfg:2: Port 70000");
    refuse("Port\n", "cfg:1: Port (no value)");
    refuse("User \"x\n", "cfg:1: a quote");
    refuse("IdentitiesOnly maybe\n", "yes or no");
    refuse("=x\n", "cfg:1:");
    refuse("Include x\n", "Include");
    refuse("AddressFamily ipx\n", "inet6");
}

struct includes {
    const char *want, *text;
};

static int include(void *ctx, const char *pattern, int user,
                   int (*each)(void *, const char *, const char *, size_t, struct err *), void *arg,
                   struct err *err)
{
    const struct includes *f = ctx;

    assert_string_equal(pattern, f->want);
    assert_int_equal(user, 1);
    return each(arg, "inc", f->text, strlen(f->text), err);
}

static void test_include(void **state)
{
    struct includes f = {"more", "Port 99\nHost other\nUser wrong\n"};
    struct ssh_config_files files = {&f, include};
    struct ssh_config c;
    struct err e = ERR_INIT;
    const char *text = "Host n1\nInclude more\nUser right\n", *self = "Include more\n";

    ssh_config_init(&c);
    assert_int_equal(ssh_config_apply(&c, "n1", "cfg", 1, text, strlen(text), &files, &e), 0);
    assert_int_equal(c.port, 99);
    assert_string_equal(c.user, "right"); /* a Host block of an included file ends with it */
    ssh_config_clear(&c);
    ssh_config_init(&c);
    assert_int_equal(ssh_config_apply(&c, "n2", "cfg", 1, text, strlen(text), &files, &e), 0);
    assert_int_equal(c.port, 0); /* not even opened */
    ssh_config_clear(&c);
    f.text = self;
    ssh_config_init(&c);
    assert_int_equal(ssh_config_apply(&c, "n1", "cfg", 1, self, strlen(self), &files, &e), -1);
    assert_non_null(strstr(e.text, "nests deeper"));
    ssh_config_clear(&c);
}

static void test_expand(void **state)
{
    struct ssh_tokens t = {.host = "h", .original = "o", .remote_user = "r", .local_user = "l", .home = "/u",
                           .port = 22};
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;

    assert_int_equal(ssh_config_expand("~/k/%h-%n-%r-%u-%d-%p-%%", &t, &b, &e), 0);
    assert_string_equal(b.data, "/u/k/h-o-r-l-/u-22-%");
    assert_int_equal(ssh_config_expand("%C", &t, &b, &e), -1);
    assert_int_equal(ssh_config_expand("x%", &t, &b, &e), -1);
    assert_int_equal(ssh_config_expand("${HOME}/x", &t, &b, &e), -1);
    buf_clear(&b);
}

static void destination(const char *text, int rc, const char *user, const char *host, int port)
{
    char *u = NULL, *h = NULL;
    int p = 0;

    assert_int_equal(ssh_split_destination(text, strlen(text), &u, &h, &p), rc);
    if (!rc) {
        assert_string_equal(h, host);
        assert_int_equal(p, port);
        assert_int_equal(u == NULL, user == NULL);
        if (user)
            assert_string_equal(u, user);
    }
    free(u);
    free(h);
}

static void test_destination(void **state)
{
    destination("n1", 0, NULL, "n1", 0);
    destination("me@n1:2222", 0, "me", "n1", 2222);
    destination("a@b@n1", 0, "a@b", "n1", 0);
    destination("fe80::1", 0, NULL, "fe80::1", 0);
    destination("me@[fe80::1]:23", 0, "me", "fe80::1", 23);
    destination("ssh://me@n1:23/", 0, "me", "n1", 23);
    destination("", -1, NULL, NULL, 0);
    destination("@n1", -1, NULL, NULL, 0);
    destination("n1:0", -1, NULL, NULL, 0);
    destination("n1:99999", -1, NULL, NULL, 0);
    destination("[fe80::1", -1, NULL, NULL, 0);
    destination("[fe80::1]x", -1, NULL, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_value_wins), cmocka_unit_test(test_negation),
        cmocka_unit_test(test_files_and_jump),   cmocka_unit_test(test_notes),
        cmocka_unit_test(test_errors),           cmocka_unit_test(test_include),
        cmocka_unit_test(test_expand),           cmocka_unit_test(test_destination),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
