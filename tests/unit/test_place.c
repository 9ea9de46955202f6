/* Placement: every rank once, in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/place.h"

#include <string.h>

static void every_rank_once(void **state)
{
    static const char text[] = "a slots=3\nb slots=1\nc slots=2 devices=6,7\n";
    struct hosts h = {0};
    struct place p;
    struct err err = ERR_INIT;
    int r, m, seen = 0;
    (void)state;

    assert_int_equal(hostfile_parse(&h, "t", text, strlen(text), &err), 0);
    assert_int_equal(place_make(&p, &h, &err), 0);
    assert_int_equal(p.world, 6);
    assert_int_equal(p.nodes, 3);
    for (m = 0; m < 3; m++)
        for (r = p.first[m]; r < p.first[m + 1]; r++, seen++) {
            assert_int_equal(p.rank[r].node, m);
            assert_int_equal(p.rank[r].local_rank, r - p.first[m]);
        }
    assert_int_equal(seen, 6);
    assert_int_equal(p.rank[3].node, 1);
    assert_int_equal(p.rank[5].slot, 1);
    assert_int_equal(p.rank[5].device, 7);
    place_clear(&p);
    hosts_clear(&h);
}

static void too_many(void **state)
{
    static const char text[] = "a slots=8 max_slots=4\n";
    struct hosts h = {0};
    struct place p;
    struct err err = ERR_INIT;
    (void)state;

    if (hostfile_parse(&h, "t", text, strlen(text), &err) == 0)
        assert_int_equal(place_make(&p, &h, &err), -1);
    assert_non_null(strstr(err.text, "max_slots"));
    hosts_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_rank_once), cmocka_unit_test(too_many)};

    return cmocka_run_group_tests_name("place", tests, NULL, NULL);
}
