/* SHA-1, SHA-256 and base64, as far as SSH files and the copied agent need them. SHA-1 only names hosts
 * in hashed known_hosts lines; nothing is trusted because of it. Pure. */
#ifndef DS_DIGEST_H
#define DS_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define SHA1_BYTES 20
#define SHA256_BYTES 32

/* HMAC-SHA1 with a key of at most 64 bytes whose two pads are already digested, so that one host name is
 * tried against many keys at two or three compressions each. */
struct hmac_sha1 {
    uint32_t inner[5], outer[5];
};
void hmac_sha1_init(struct hmac_sha1 *, const void *key, size_t n);
void hmac_sha1(const struct hmac_sha1 *, const void *data, size_t n, uint8_t out[SHA1_BYTES]);

void sha256(const void *data, size_t n, uint8_t out[SHA256_BYTES]);
void sha256_hex(const void *data, size_t n, char out[2 * SHA256_BYTES + 1]);

/* Strict base64 (padding required, no spaces). Returns the number of bytes written, or -1 when text is not
 * base64 or does not fit. */
long base64_decode(const char *text, size_t n, uint8_t *out, size_t cap);

#endif
