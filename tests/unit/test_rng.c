/* Random numbers: Philox against its published answers, normals against their law, permutations
 * against what a permutation is. */
#include "engine/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Known answers of philox4x32-10 from the Random123 distribution (kat_vectors). */
static void known_answers(void **state)
{
    static const struct {
        uint32_t ctr[4], key[2], out[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];

        philox4x32(kat[i].ctr, kat[i].key, out);
        assert_memory_equal(out, kat[i].out, sizeof out);
    }
}

/* rng_word is the block at (sample, site, element / 4) under the seed. */
static void words_of_blocks(void **state)
{
    uint64_t sample = 0x85a308d3243f6a88u, seed = 0x299f31d0a4093822u;

    (void)state;
    assert_int_equal(rng_word(seed, sample, 0x13198a2e, 0x03707344ull * 4), 0xd16cfe09);
    assert_int_equal(rng_word(seed, sample, 0x13198a2e, 0x03707344ull * 4 + 3), 0x24126ea1);
    assert_true(rng_uniform(0) == 0);
    assert_true(rng_uniform(~0u) == 1 - 0x1p-24f);
    assert_int_not_equal(rng_site("h.0.attn_dropout"), rng_site("h.1.attn_dropout"));
}

/* Elements 0..3 of a stream by hand from the first known answer: seed 0, site 0, block 0. */
static void normal_by_hand(void **state)
{
    static const uint32_t w[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};

    (void)state;
    for (uint64_t i = 0; i < 4; i++) {
        double u = (w[i & 2] + 0.5) / 4294967296.0, v = w[(i & 2) + 1] / 4294967296.0;
        double r = sqrt(-2 * log(u)), a = 2 * acos(-1) * v;

        assert_true(fabs(rng_normal(0, 0, i) - r * (i & 1 ? sin(a) : cos(a))) < 1e-14);
    }
}

static void normals_are_normal(void **state)
{
    enum { N = 200000 };
    double *x = malloc(N * sizeof *x), sum[5] = {0};

    (void)state;
    rng_normals(1234, rng_site("embed.w"), 3, N, x);
    for (int i = 0; i < N; i += 997)
        assert_true(x[i] == rng_normal(1234, rng_site("embed.w"), 3 + (uint64_t)i));
    for (int i = 0; i < N; i++)
        for (int k = 1; k < 5; k++)
            sum[k] += pow(x[i], k);
    /* Six standard errors of each moment of N normals: sqrt(1, 2, 15, 96) / sqrt(N). */
    assert_true(fabs(sum[1] / N) < 6 * sqrt(1.0 / N));
    assert_true(fabs(sum[2] / N - 1) < 6 * sqrt(2.0 / N));
    assert_true(fabs(sum[3] / N) < 6 * sqrt(15.0 / N));
    assert_true(fabs(sum[4] / N - 3) < 6 * sqrt(96.0 / N));
    /* Any piece is the same as the whole. */
    for (uint64_t first = 0; first < 9; first++) {
        double piece[9];

        rng_normals(1234, rng_site("embed.w"), 3 + first, 9 - first, piece);
        assert_memory_equal(piece, x + first, (9 - first) * sizeof *x);
    }
    free(x);
}

static void permutations(void **state)
{
    static uint8_t seen[2001];

    (void)state;
    for (uint64_t n = 1; n <= 2000; n++) {
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t j = rng_permute(7, 1, i, n);

            assert_true(j < n && !seen[j]);
            seen[j] = 1;
        }
    }
    /* Far beyond any table. */
    assert_true(rng_permute(7, 0, ((uint64_t)1 << 40) - 1, (uint64_t)1 << 40) < (uint64_t)1 << 40);
}

/* Every pass and every seed has its own order, and positions do not stay where they were. */
static void permutations_mix(void **state)
{
    enum { N = 1000 };
    int fixed = 0, same_epoch = 0, same_seed = 0, neighbours = 0;

    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t j = rng_permute(7, 0, i, N);

        fixed += j == i;
        same_epoch += j == rng_permute(7, 1, i, N);
        same_seed += j == rng_permute(8, 0, i, N);
        neighbours += i + 1 < N && rng_permute(7, 0, i + 1, N) == j + 1;
    }
    /* Each count is about Poisson with mean 1. */
    assert_true(fixed < 12 && same_epoch < 12 && same_seed < 12 && neighbours < 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),  cmocka_unit_test(words_of_blocks),
        cmocka_unit_test(normal_by_hand), cmocka_unit_test(normals_are_normal),
        cmocka_unit_test(permutations),   cmocka_unit_test(permutations_mix),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
