/* SHA-1, SHA-256 (FIPS 180-4), HMAC (RFC 2104) and base64 (RFC 4648): see digest.h. Byte-wise loads, so
 * neither alignment nor byte order matters. */
#include "launcher/digest.h"

#include <string.h>

static uint32_t load(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static uint32_t rol(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

static uint32_t ror(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void sha1_block(uint32_t *h, const uint8_t *p)
{
    static const uint32_t k[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];

    for (int t = 0; t < 80; t++)
        w[t] = t < 16 ? load(p + 4 * t) : rol(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    for (int t = 0; t < 80; t++) {
        uint32_t f = t < 20                ? (b & c) | (~b & d)
                     : t >= 40 && t < 60 ? (b & c) | (b & d) | (c & d)
                                           : b ^ c ^ d;
        uint32_t x = rol(a, 5) + f + e + k[t / 20] + w[t];
        e = d, d = c, c = rol(b, 30), b = a, a = x;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

static void sha256_block(uint32_t *h, const uint8_t *p)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], last = h[7];

    for (int t = 0; t < 16; t++)
        w[t] = load(p + 4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t x = w[t - 15], y = w[t - 2];
        w[t] = w[t - 16] + (ror(x, 7) ^ ror(x, 18) ^ x >> 3) + w[t - 7] + (ror(y, 17) ^ ror(y, 19) ^ y >> 10);
    }
    for (int t = 0; t < 64; t++) {
        uint32_t t1 = last + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + ((e & f) ^ (~e & g)) + k[t] + w[t];
        uint32_t t2 = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        last = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e, h[5] += f, h[6] += g, h[7] += last;
}

/* Digests data and the padding; before: bytes that went into h already (a multiple of 64). */
static void finish(void (*block)(uint32_t *, const uint8_t *), uint32_t *h, const void *data, size_t n,
                   uint64_t before)
{
    const uint8_t *p = data;
    uint8_t tail[128] = {0};
    uint64_t bits = (before + n) * 8;
    size_t left, end;

    for (left = n; left >= 64; left -= 64, p += 64)
        block(h, p);
    if (left)
        memcpy(tail, p, left);
    tail[left] = 0x80;
    end = left < 56 ? 64 : 128;
    store(tail + end - 8, (uint32_t)(bits >> 32));
    store(tail + end - 4, (uint32_t)bits);
    block(h, tail);
    if (end == 128)
        block(h, tail + 64);
}

static const uint32_t sha1_start[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};

void hmac_sha1_init(struct hmac_sha1 *m, const void *key, size_t n)
{
    uint8_t pad[64] = {0};

    memcpy(m->inner, sha1_start, sizeof m->inner);
    memcpy(m->outer, sha1_start, sizeof m->outer);
    memcpy(pad, key, n < sizeof pad ? n : sizeof pad);
    for (int i = 0; i < 64; i++)
        pad[i] ^= 0x36;
    sha1_block(m->inner, pad);
    for (int i = 0; i < 64; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    sha1_block(m->outer, pad);
}

void hmac_sha1(const struct hmac_sha1 *m, const void *data, size_t n, uint8_t out[SHA1_BYTES])
{
    uint32_t h[5];

    memcpy(h, m->inner, sizeof h);
    finish(sha1_block, h, data, n, 64);
    for (int i = 0; i < 5; i++)
        store(out + 4 * i, h[i]);
    memcpy(h, m->outer, sizeof h);
    finish(sha1_block, h, out, SHA1_BYTES, 64);
    for (int i = 0; i < 5; i++)
        store(out + 4 * i, h[i]);
}

void sha256(const void *data, size_t n, uint8_t out[SHA256_BYTES])
{
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    finish(sha256_block, h, data, n, 0);
    for (int i = 0; i < 8; i++)
        store(out + 4 * i, h[i]);
}

void sha256_hex(const void *data, size_t n, char out[2 * SHA256_BYTES + 1])
{
    uint8_t d[SHA256_BYTES];

    sha256(data, n, d);
    for (int i = 0; i < SHA256_BYTES; i++) {
        out[2 * i] = "0123456789abcdef"[d[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[d[i] & 15];
    }
    out[2 * SHA256_BYTES] = 0;
}

static int sextet(char c)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(set, c) : NULL;

    return at ? (int)(at - set) : -1;
}

long base64_decode(const char *text, size_t n, uint8_t *out, size_t cap)
{
    size_t got = 0, pad = 0;

    if (n % 4)
        return -1;
    while (pad < 2 && pad < n && text[n - 1 - pad] == '=')
        pad++;
    if (n / 4 * 3 - pad > cap)
        return -1;
    for (size_t i = 0; i < n; i += 4) {
        int last = i + 4 == n;
        uint32_t v = 0;
        for (size_t j = 0; j < 4; j++) {
            int s = last && j >= 4 - pad ? 0 : sextet(text[i + j]);
            if (s < 0)
                return -1;
            v = v << 6 | (uint32_t)s;
        }
        for (size_t j = 0; j < 3 - (last ? pad : 0); j++)
            out[got++] = (uint8_t)(v >> (16 - 8 * j));
    }
    return (long)got;
}
