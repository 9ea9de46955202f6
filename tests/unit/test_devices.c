/* CUDA_VISIBLE_DEVICES of a node's ranks. Expected values: what CUDA does with a mask, and deepspeed's users. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/devices.h"

#include <string.h>

#define N(...) (int[]){__VA_ARGS__}, (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int))

static void check(const char *mask, int present, const int *device, int n, int named, const char *want)
{
    struct buf out = BUF_INIT;
    struct err err = ERR_INIT;
    int rc = devices_choose(mask, present, device, n, named, &out, &err);

    if (!strncmp(want, "error: ", 7)) {
        assert_int_equal(rc, -1);
        if (!strstr(err.text, want + 7))
            fail_msg("have: %s\nwant: %s", err.text, want);
    } else {
        assert_int_equal(rc, 0);
        assert_string_equal(buf_str(&out), want);
    }
    buf_clear(&out);
}

static void without_mask(void **state)
{
    (void)state;
    check(NULL, 8, N(0, 1, 2), 0, "0,1,2");
    check(NULL, 8, N(6, 7), 1, "6,7");
    check(NULL, 0, N(0, 1), 0, ""); /* no GPU here: nothing is said */
    check(NULL, 2, N(0, 1, 2), 0, ""); /* more ranks than devices share them as they like */
    check(NULL, 2, N(0, 1, 2), 1, "error: it has 2 devices, none is number 2");
    check(NULL, 2, N(5), 1, "error: it has 2 devices, none is number 5");
}

static void within_the_mask(void **state)
{
    (void)state;
    check("4,5,6,7", 8, N(0, 1), 0, "4,5");
    check("4,5,6,7", 8, N(2), 0, "6"); /* --include w1:2 */
    check("4,5", 8, N(4, 5), 0, "4,5"); /* the filter or hostfile names the node's own ids */
    check("1,0", 8, N(1, 0), 1, "1,0");
    check("1,0", 8, N(1, 0), 0, "0,1"); /* slots count within the mask */
    check("2,3", 8, N(0, 1, 2), 0, "error: CUDA_VISIBLE_DEVICES=2,3 allows 2 devices for 3 ranks");
    check("2,3", 8, N(9), 1, "error: CUDA_VISIBLE_DEVICES=2,3 allows 2 devices, none is number 9");
    check(" 3 , 4 ", 0, N(1), 0, "4");
    check("3,-1,4", 8, N(0, 1), 0, "error: CUDA_VISIBLE_DEVICES=3,-1,4 allows 1 device for 2 ranks");
}

static void names(void **state)
{
    static const char uuids[] = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-5ebe9f43-ac33-420e-8e7d-4c1c8ab5f2a1";
    static const char mig[] = "MIG-c7384736-a75d-5afc-978f-d2f1294409fd,MIG-GPU-8932f937/1/0";
    (void)state;

    check(uuids, 8, N(0, 1), 0, uuids);
    check(uuids, 8, N(1), 0, "GPU-5ebe9f43-ac33-420e-8e7d-4c1c8ab5f2a1");
    check(uuids, 8, N(0, 1, 2), 0, "error: allows 2 devices for 3 ranks");
    check(mig, 1, N(0, 1), 0, mig); /* more entries than /dev/nvidiaN: fine */
    check("GPU-89", 8, N(0), 0, "GPU-89"); /* CUDA takes a beginning, too */
}

static void hidden(void **state)
{
    (void)state;
    check("", 8, N(0, 1), 0, "");
    check("-1", 8, N(0, 1), 0, "");
    check("NoDevFiles", 8, N(0, 1), 0, ""); /* Slurm's word for none */
    assert_int_equal(devices_visible(NULL), -1);
    assert_int_equal(devices_visible(""), 0);
    assert_int_equal(devices_visible("NoDevFiles"), 0);
    assert_int_equal(devices_visible("0,GPU-a,MIG-b"), 3);
    assert_int_equal(devices_visible("7,"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_mask), cmocka_unit_test(within_the_mask),
                                       cmocka_unit_test(names), cmocka_unit_test(hidden)};

    return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
