/* Fragments against brute force: every element of small tensors counted one by one. */
#include "engine/base/frag.h"
#include "engine/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t dice(uint32_t *at, uint32_t n)
{
    return rng_word(99, 0, 1, (*at)++) % n;
}

enum { TENSORS = 4, TOTAL = 12 };
static const char *const names[TENSORS] = {"a", "a", "b", "b.c"}, *const kinds[TENSORS] = {
                                                                      "m", "w", "w", "w"};

/* Random fragments of the four tensors; some have gaps, some copies. */
static int random_frags(uint32_t *at, struct frag *f, int max)
{
    int n = (int)dice(at, (uint32_t)max);

    for (int i = 0; i < n; i++) {
        int t = (int)dice(at, TENSORS);
        uint64_t lo = dice(at, TOTAL), count = 1 + dice(at, TOTAL);

        f[i] = (struct frag){
            names[t], kinds[t],        TOTAL, lo, lo + count > TOTAL ? TOTAL - lo : count,
            1,        (int)dice(at, 5)};
    }
    return n;
}

static int same_tensor(const struct frag *a, const struct frag *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->kind, b->kind) == 0;
}

/* Lowest holder of element e of w's tensor, -1 when nobody has it. */
static int holder_of(const struct frag *have, int n, const struct frag *w, uint64_t e)
{
    int best = -1;

    for (int i = 0; i < n; i++)
        if (same_tensor(&have[i], w) && have[i].first <= e && e < have[i].first + have[i].count &&
            (best < 0 || have[i].holder < best))
            best = have[i].holder;
    return best;
}

/* Every element of every want is filled once, from the lowest holder, in order. */
static void check_moves(const struct frag *have, int n, const struct frag *want, int nwant,
                        const struct frag_move *m, int nmoves)
{
    int k = 0;

    for (int w = 0; w < nwant; w++) {
        uint64_t at = 0;

        for (; k < nmoves && m[k].to == w; k++) {
            const struct frag *from = &have[m[k].from];

            assert_true(same_tensor(from, &want[w]));
            assert_true(m[k].to_off == at && m[k].count > 0);
            assert_true(m[k].from_off + m[k].count <= from->count);
            assert_true(from->first + m[k].from_off == want[w].first + at);
            for (uint64_t i = 0; i < m[k].count; i++)
                assert_int_equal(from->holder,
                                 holder_of(have, n, &want[w], want[w].first + at + i));
            at += m[k].count;
        }
        assert_true(at == want[w].count);
    }
    assert_int_equal(k, nmoves);
}

static void brute_force(void **state)
{
    uint32_t at = 0;
    int covered = 0;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct frag have[24], want[6];
        struct frag_move *moves;
        struct err err = ERR_INIT;
        int n = random_frags(&at, have, 24), nwant = random_frags(&at, want, 6), whole = 1, nmoves,
            rc;

        frag_sort(have, n);
        frag_sort(want, nwant);
        for (int w = 0; w < nwant; w++)
            for (uint64_t i = 0; i < want[w].count; i++)
                whole &= holder_of(have, n, &want[w], want[w].first + i) >= 0;
        assert_int_equal(frag_cover(have, n, want, nwant, &err), whole ? 0 : -1);
        rc = frag_plan_moves(have, n, want, nwant, &moves, &nmoves, &err);
        assert_int_equal(rc, whole ? 0 : -1);
        if (rc == 0)
            check_moves(have, n, want, nwant, moves, nmoves);
        else
            assert_non_null(strstr(err.text, "missing"));
        covered += whole && nwant > 0;
        free(moves);
    }
    assert_in_range(covered, 1000, 19000); /* both kinds were met */
}

static void says_the_gap(void **state)
{
    struct frag have[] = {{"t", "w", 100, 0, 10, 1, 0}, {"t", "w", 100, 30, 70, 1, 1}};
    struct frag want[] = {{"t", "w", 100, 0, 100, 0, 0}}, other[] = {{"u", "m", 5, 0, 5, 0, 0}};
    struct err err;

    (void)state;
    assert_int_equal(frag_cover(have, 2, want, 1, &err), -1);
    assert_string_equal(err.text, "t|w: elements 10 to 30 of 100 are missing");
    assert_int_equal(frag_cover(have, 2, other, 1, &err), -1);
    assert_string_equal(err.text, "u|m: elements 0 to 5 of 5 are missing");
    want[0].total = 99;
    want[0].count = 99;
    assert_int_equal(frag_cover(have, 2, want, 1, &err), -1);
    assert_string_equal(err.text, "t|w has 100 elements where 99 are wanted");
}

static void numbers_that_overflow(void **state)
{
    struct frag have[] = {{"t", "w", UINT64_MAX, UINT64_MAX - 1, 5, 1, 0}};
    struct frag want[] = {{"t", "w", UINT64_MAX, 0, UINT64_MAX, 0, 0}};
    struct frag_move *moves;
    struct err err;
    int n;

    (void)state;
    assert_int_equal(frag_cover(have, 1, want, 1, &err), -1);
    assert_non_null(strstr(err.text, "lie outside"));
    assert_int_equal(frag_plan_moves(have, 1, want, 1, &moves, &n, &err), -1);
    assert_null(moves);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brute_force),
        cmocka_unit_test(says_the_gap),
        cmocka_unit_test(numbers_that_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
