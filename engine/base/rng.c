/* Counter-based random numbers: see rng.h. Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel
 * random numbers: as easy as 1, 2, 3" (SC'11). Everything here is a pure function. */
#include "engine/base/rng.h"
#include "engine/base/hash.h"

#include <math.h>
#include <string.h>

#define FEISTEL_ROUNDS 8

static inline void mulhilo(uint32_t a, uint32_t b, uint32_t *hi, uint32_t *lo)
{
    uint64_t p = (uint64_t)a * b;

    *hi = (uint32_t)(p >> 32);
    *lo = (uint32_t)p;
}

void philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        uint32_t hi0, lo0, hi1, lo1;

        mulhilo(0xD2511F53u, c0, &hi0, &lo0);
        mulhilo(0xCD9E8D57u, c2, &hi1, &lo1);
        c0 = hi1 ^ c1 ^ k0;
        c1 = lo1;
        c2 = hi0 ^ c3 ^ k1;
        c3 = lo0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint32_t rng_site(const char *name)
{
    return (uint32_t)hash64(name, strlen(name));
}

/* The block (hi 64 bit, site, lo 32 bit) under key seed. */
static void block(uint64_t seed, uint64_t hi, uint32_t site, uint32_t lo, uint32_t out[4])
{
    uint32_t ctr[4] = {(uint32_t)hi, (uint32_t)(hi >> 32), site, lo};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    philox4x32(ctr, key, out);
}

uint32_t rng_word(uint64_t seed, uint64_t sample, uint32_t site, uint64_t element)
{
    uint32_t w[4];

    block(seed, sample, site, (uint32_t)(element / 4), w);
    return w[element % 4];
}

/* Two words to two normal numbers. The half keeps the logarithm finite. */
static void box_muller(uint32_t a, uint32_t b, double *even, double *odd)
{
    double radius = sqrt(-2 * log(((double)a + 0.5) * 0x1p-32));
    double angle = 2 * M_PI * ((double)b * 0x1p-32);

    *even = radius * cos(angle);
    *odd = radius * sin(angle);
}

/* Block element / 4 of the stream: its upper half stands where a mask has the sample. */
static void normal_block(uint64_t seed, uint32_t site, uint64_t element, uint32_t w[4])
{
    uint64_t index = element / 4;

    block(seed, index >> 32, site, (uint32_t)index, w);
}

double rng_normal(uint64_t seed, uint32_t site, uint64_t element)
{
    uint32_t w[4];
    double even, odd;

    normal_block(seed, site, element, w);
    box_muller(w[element & 2], w[(element & 2) + 1], &even, &odd);
    return element & 1 ? odd : even;
}

void rng_normals(uint64_t seed, uint32_t site, uint64_t first, uint64_t n, double *out)
{
    for (uint64_t i = 0; i < n;) {
        uint64_t element = first + i;
        uint32_t w[4];
        double z[2];

        normal_block(seed, site, element, w);
        for (unsigned at = element & 3; at < 4 && i < n; at = (at & 2) + 2) {
            box_muller(w[at & 2], w[(at & 2) + 1], &z[0], &z[1]);
            for (unsigned odd = at & 1; odd < 2 && i < n; odd++)
                out[i++] = z[odd];
        }
    }
}

uint64_t rng_permute(uint64_t seed, uint64_t epoch, uint64_t i, uint64_t n)
{
    int half = 1;
    uint64_t mask, v = i;

    if (n <= 1)
        return 0;
    while (half < 32 && n > (uint64_t)1 << (2 * half))
        half++;
    mask = ((uint64_t)1 << half) - 1;
    /* A Feistel network permutes [0, 4^half); walking on until the value is below n makes that a
     * permutation of [0, n), because i itself is below n. 4^half < 4n, so few walks are needed. */
    do {
        uint64_t left = v >> half, right = v & mask;

        for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
            uint32_t w[4];
            uint64_t next;

            block(seed, epoch, round, (uint32_t)right, w);
            next = left ^ (w[0] & mask);
            left = right;
            right = next;
        }
        v = left << half | right;
    } while (v >= n);
    return v;
}
