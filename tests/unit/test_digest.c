/* Digests against the vectors of their standards and of openssl. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void hex(const uint8_t *d, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        sprintf(out + 2 * i, "%02x", d[i]);
}

static void check_hmac(const char *key, const char *data, const char *want)
{
    struct hmac_sha1 m;
    uint8_t d[SHA1_BYTES];
    char got[2 * SHA1_BYTES + 1];

    hmac_sha1_init(&m, key, strlen(key));
    hmac_sha1(&m, data, strlen(data), d);
    hex(d, sizeof d, got);
    assert_string_equal(got, want);
}

static void test_hmac_sha1(void **state)
{
    /* RFC 2202 cases 1, 2; openssl dgst -sha1 -hmac for the third */
    check_hmac("\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b", "Hi There",
               "b617318655057264e28bc0b6fb378c8ef146be00");
    check_hmac("Jefe", "what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
    check_hmac("key", "The quick brown fox", "22f9e077a3cebd09248154f85d9a56c79941fd96");
}

static void test_sha256(void **state)
{
    char got[65], *many = malloc(1000000);

    sha256_hex("", 0, got);
    assert_string_equal(got, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256_hex("abc", 3, got);
    assert_string_equal(got, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, got);
    assert_string_equal(got, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(many, 'a', 1000000);
    sha256_hex(many, 1000000, got);
    assert_string_equal(got, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    sha256_hex("hello hosts", 11, got);
    assert_string_equal(got, "074ca38ca73ce95f888a1d1f6ec2e7cde01f7e9f6a49bb582f9bc2454886b350");
    free(many);
}

static void test_base64(void **state)
{
    uint8_t out[16];

    assert_int_equal(base64_decode("", 0, out, sizeof out), 0);
    assert_int_equal(base64_decode("Zm9vYmFy", 8, out, sizeof out), 6);
    assert_memory_equal(out, "foobar", 6);
    assert_int_equal(base64_decode("Zm9vYg==", 8, out, sizeof out), 4);
    assert_int_equal(base64_decode("Zm9vYmE=", 8, out, sizeof out), 5);
    assert_memory_equal(out, "fooba", 5);
    assert_int_equal(base64_decode("Zm9vYg=", 7, out, sizeof out), -1);
    assert_int_equal(base64_decode("Zm9v!mFy", 8, out, sizeof out), -1);
    assert_int_equal(base64_decode("Zm=vYmFy", 8, out, sizeof out), -1);
    assert_int_equal(base64_decode("====", 4, out, sizeof out), -1);
    assert_int_equal(base64_decode("Zm9vYmFy", 8, out, 5), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hmac_sha1),
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_base64),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
