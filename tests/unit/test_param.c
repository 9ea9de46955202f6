/* The parameter table: layout by hand, ties, groups, freezing; slices cover each element once. */
#include "engine/param/param.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* embedding: wte (10, 3), owner of a tie. block: bias (5), qkv of parts q (4, 3), k (2, 3). head: wte tied. */
static const struct ds_param embedding[] = {
    {.name = "wte", .part = {{"", 10}}, .nparts = 1, .cols = 3, .unit = 1},
    {.name = "wpe", .part = {{"", 4}}, .nparts = 1, .cols = 3, .unit = 1},
};
static const struct ds_param block[] = {
    {.name = "bias", .part = {{"", 5}}, .nparts = 1, .cols = 1, .unit = 1, .init = {DS_INIT_ONE, 0}},
    {.name = "qkv", .part = {{"q", 4}, {"k", 2}}, .nparts = 2, .cols = 3, .unit = 2,
     .init = {DS_INIT_NORMAL, 0.5}},
};
static const struct ds_param head[] = {
    {.name = "w", .part = {{"", 10}}, .nparts = 1, .cols = 3, .unit = 1, .tie = "embedding.wte"},
};
static const struct param_layer layers[] = {
    {"embedding", embedding, 2}, {"block", block, 2}, {"head", head, 1}};

static struct param_table *make(int ranks, const char *freeze)
{
    struct err err = ERR_INIT;
    struct param_table *t;

    if (param_table_create(&t, layers, 3, ranks, &(struct param_rules){0.1, freeze, NULL, NULL}, &err) < 0)
        fail_msg("%s", err.text);
    return t;
}

static void layout_by_hand(void **state)
{
    struct param_table *t = make(3, NULL);
    int q = param_find(t, "block.qkv.q"), k = param_find(t, "block.qkv.k");
    int bias = param_find(t, "block.bias"), w = param_find(t, "head.w");

    /* flats: embedding without the owner (wpe), the owner, block */
    assert_int_equal(t->nflats, 3);
    assert_int_equal(t->numel, 30 + 12 + 5 + 18);
    /* decay first: q 12, k 6 without a gap, then the bias at the next 16 */
    assert_int_equal(t->tensor[q].offset, 0);
    assert_int_equal(t->tensor[k].offset, 12);
    assert_int_equal(t->tensor[bias].offset, 32);
    /* P = 37: slices of ceil(37 / 48) * 16 = 16, owner P = 30: 16, wpe P = 12: 16 */
    for (int f = 0; f < 3; f++) {
        assert_int_equal(t->flat[f].slice, 16);
        assert_int_equal(t->flat[f].base, 48 * f);
    }
    assert_int_equal(t->total, 144);
    assert_int_equal(t->tensor[w].alias, param_find(t, "embedding.wte"));
    assert_int_equal(t->at[2][0], t->at[0][0]);
    assert_int_equal(t->at[1][0], 96 + 32);
    assert_string_equal(t->group[t->tensor[bias].group].name, "no_decay");
    assert_true(t->group[t->tensor[bias].group].weight_decay == 0);
    assert_true(t->group[t->tensor[q].group].weight_decay == 0.1);
    param_table_destroy(t);
}

/* Each element of each tensor lies in exactly one slice, at the place that the layout says. */
static void slices_cover_once(void **state)
{
    for (int ranks = 1; ranks <= 9; ranks++) {
        struct param_table *t = make(ranks, NULL);
        unsigned char *seen = calloc(t->total, 1);
        uint64_t covered = 0;

        for (int f = 0; f < t->nflats; f++)
            for (int r = 0; r < ranks; r++) {
                struct param_seg *seg;
                int n = param_segments(t, f, r, &seg);

                for (int s = 0; s < n; s++)
                    for (uint64_t i = seg[s].lo; i < seg[s].hi; i++) {
                        uint64_t at = t->flat[f].base + (uint64_t)r * t->flat[f].slice + seg[s].at +
                                      i - seg[s].lo;

                        assert_int_equal(at, t->flat[f].base + t->tensor[seg[s].tensor].offset + i);
                        assert_int_equal(seen[at]++, 0);
                        covered++;
                    }
                free(seg);
            }
        assert_int_equal(covered, t->numel);
        free(seen);
        param_table_destroy(t);
    }
}

static void init_does_not_depend_on_the_cut(void **state)
{
    struct param_table *t = make(2, NULL);
    const struct param_tensor *q = &t->tensor[param_find(t, "block.qkv.q")];
    float whole[12], piece[12], other[12];
    double sum = 0;

    param_init_range(q, 7, 0, 12, whole);
    for (uint64_t i = 0; i < 12; i++) {
        param_init_range(q, 7, i, i + 1, piece + i);
        sum += whole[i] * whole[i];
    }
    assert_memory_equal(whole, piece, sizeof whole);
    assert_true(sum > 0);
    param_init_range(q, 8, 0, 12, other);
    assert_true(memcmp(whole, other, sizeof whole) != 0);
    param_init_range(&t->tensor[param_find(t, "block.bias")], 7, 0, 5, piece);
    for (int i = 0; i < 5; i++)
        assert_true(piece[i] == 1.0f);
    param_table_destroy(t);
}

static void freeze_by_pattern(void **state)
{
    struct param_table *t = make(1, "embedding.*, *.q");

    assert_true(t->tensor[param_find(t, "embedding.wte")].flags & DS_FROZEN);
    assert_true(t->tensor[param_find(t, "block.qkv.q")].flags & DS_FROZEN);
    assert_false(t->tensor[param_find(t, "block.qkv.k")].flags & DS_FROZEN);
    param_table_destroy(t);
}

static void groups_by_pattern(void **state)
{
    static const struct {
        const char *no_decay, *lr_mul, *says;
    } bad[] = {
        {"blok.*", NULL, "optimizer.no_decay: no parameter has a name like 'blok.*'"},
        {NULL, "block.*", "'block.*' is not PATTERN:FACTOR"},
        {NULL, "block.*:-1", "'block.*:-1' is not PATTERN:FACTOR"},
        {NULL, "block.*:2, x:1", "optimizer.lr_mul: no parameter has a name like 'x'"},
    };
    struct param_rules rules = {0.1, NULL, "*.k, embedding.wpe", "block.qkv.q:0.5, block.*:2"};
    struct err err = ERR_INIT;
    struct param_table *t;
    static const struct {
        const char *name;
        double decay, mul;
    } want[] = {{"block.qkv.q", 0.1, 0.5}, {"block.qkv.k", 0, 2}, {"block.bias", 0, 2},
                {"embedding.wpe", 0, 1}, {"embedding.wte", 0.1, 1}};

    assert_int_equal(param_table_create(&t, layers, 3, 1, &rules, &err), 0);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct param_group *g = &t->group[t->tensor[param_find(t, want[i].name)].group];

        assert_true(g->weight_decay == want[i].decay && g->lr_mul == want[i].mul);
    }
    param_table_destroy(t);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rules = (struct param_rules){0.1, NULL, bad[i].no_decay, bad[i].lr_mul};
        err = (struct err)ERR_INIT;
        assert_int_equal(param_table_create(&t, layers, 3, 1, &rules, &err), -1);
        assert_non_null(strstr(err.text, bad[i].says));
    }
}

static void a_tie_without_owner_is_refused(void **state)
{
    struct err err = ERR_INIT;
    struct param_table *t;

    assert_int_equal(param_table_create(&t, layers + 1, 2, 1, &(struct param_rules){0}, &err), -1);
    assert_non_null(strstr(err.text, "embedding.wte"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_by_hand),
        cmocka_unit_test(slices_cover_once),
        cmocka_unit_test(init_does_not_depend_on_the_cut),
        cmocka_unit_test(freeze_by_pattern),
        cmocka_unit_test(groups_by_pattern),
        cmocka_unit_test(a_tie_without_owner_is_refused),
    };

    return cmocka_run_group_tests_name("param", tests, NULL, NULL);
}
