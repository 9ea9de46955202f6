/* The mesh: order of axes by hand, every rank placed once, groups, refusals. */
#include "engine/mesh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static struct mesh make(int world, int p, int d, int s, int t)
{
    struct err err = ERR_INIT;
    struct mesh m;
    int64_t sizes[MESH_AXES] = {p, d, s, t};

    if (mesh_init(&m, world, sizes, &err) < 0)
        fail_msg("%s", err.text);
    return m;
}

/* 2 x 2 x 1 x 2: rank = pipeline * 4 + data * 2 + tensor. */
static void order_of_axes(void **state)
{
    struct mesh m = make(8, 2, 2, 1, 2);
    int at[MESH_AXES], group[8];

    mesh_coords(&m, 6, at);
    assert_int_equal(at[MESH_PIPELINE], 1);
    assert_int_equal(at[MESH_DATA], 1);
    assert_int_equal(at[MESH_TENSOR], 0);
    assert_int_equal(mesh_group(&m, 5, MESH_TENSOR, group), 1);
    assert_int_equal(group[0], 4);
    assert_int_equal(group[1], 5);
    assert_int_equal(mesh_group(&m, 5, MESH_DATA, group), 0);
    assert_int_equal(group[0], 5);
    assert_int_equal(group[1], 7);
    assert_int_equal(mesh_group(&m, 5, MESH_PIPELINE, group), 1);
    assert_int_equal(group[0], 1);
    assert_int_equal(group[1], 5);
}

static void every_rank_once(void **state)
{
    for (int p = 1; p <= 4; p++)
        for (int d = 1; d <= 4; d++)
            for (int t = 1; t <= 4; t++) {
                struct mesh m = make(p * d * t, p, d, 1, t);
                int at[MESH_AXES];

                for (int r = 0; r < m.world; r++) {
                    mesh_coords(&m, r, at);
                    assert_int_equal(mesh_rank(&m, at), r);
                }
            }
}

static void data_fills_the_rest(void **state)
{
    struct mesh m = make(12, 2, 0, 0, 3);

    assert_int_equal(m.size[MESH_DATA], 2);
    assert_int_equal(m.size[MESH_SEQUENCE], 1);
    m = make(6, 1, 3, 1, 0);
    assert_int_equal(m.size[MESH_TENSOR], 2);
}

static void refusals_name_the_numbers(void **state)
{
    struct err err = ERR_INIT;
    struct mesh m;
    int64_t five[MESH_AXES] = {0, 5, 0, 0}, three[MESH_AXES] = {3, 0, 1, 1};

    assert_int_equal(mesh_init(&m, 4, five, &err), -1);
    assert_int_equal(err.code, ERR_INPUT);
    assert_non_null(strstr(err.text, "data = 5"));
    assert_int_equal(mesh_init(&m, 8, three, &err), -1);
    assert_non_null(strstr(err.text, "pipeline 3"));
    assert_non_null(strstr(err.text, "8 ranks"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_of_axes),
        cmocka_unit_test(every_rank_once),
        cmocka_unit_test(data_fills_the_rest),
        cmocka_unit_test(refusals_name_the_numbers),
    };

    return cmocka_run_group_tests_name("mesh", tests, NULL, NULL);
}
