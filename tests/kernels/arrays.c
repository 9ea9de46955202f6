/* Arrays for the operators' tests: see arrays.h. */
#include "tests/kernels/arrays.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/ref/ref.h"

#define CANARY 0xa5

double pool_uniform(struct pool *p)
{
    p->random = p->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(p->random >> 11) * 0x1p-53;
}

static void store(struct array *a, int64_t i, double x)
{
    float f = (float)x;
    uint32_t u;

    switch (a->t) {
    case DS_BF16: /* x is a bf16 number, so the lower half is zero */
        memcpy(&u, &f, sizeof u);
        ((uint16_t *)a->stored)[i] = (uint16_t)(u >> 16);
        break;
    case DS_F16:
        ((_Float16 *)a->stored)[i] = (_Float16)x;
        break;
    case DS_F64:
        ((double *)a->stored)[i] = x;
        break;
    default:
        ((float *)a->stored)[i] = f;
    }
}

double array_get(const struct array *a, int64_t i)
{
    uint32_t u;
    float f;

    switch (a->t) {
    case DS_BF16:
        u = (uint32_t)((const uint16_t *)a->stored)[i] << 16;
        memcpy(&f, &u, sizeof f);
        return f;
    case DS_F16:
        return (double)((const _Float16 *)a->stored)[i];
    case DS_F64:
        return ((const double *)a->stored)[i];
    default:
        return ((const float *)a->stored)[i];
    }
}

static struct array *new_array(struct pool *p, int64_t n, enum ds_dtype t)
{
    struct array *a = &p->array[p->count++];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (size_t)n * ds_dtype_bytes(t);
    size_t body = (bytes + 64 + page - 1) / page * page;

    assert_true(p->count <= POOL_MAX);
    *a = (struct array){.n = n, .t = t, .map_bytes = body + page, .head = body - bytes};
    a->map = mmap(NULL, a->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(a->map, MAP_FAILED);
    assert_int_equal(mprotect(a->map + body, page, PROT_NONE), 0);
    memset(a->map, CANARY, a->head);
    a->stored = a->map + a->head;
    memset(a->stored, 0xff, bytes); /* NaN in every type */
    a->want = calloc((size_t)n + 1, sizeof *a->want);
    assert_non_null(a->want);
    return a;
}

void pool_end(struct pool *p)
{
    for (int i = 0; i < p->count; i++) {
        struct array *a = &p->array[i];

        for (size_t b = 0; b < a->head; b++)
            if ((unsigned char)a->map[b] != CANARY)
                fail_msg("array %d was written %zu bytes before its start", i, a->head - b);
        free(a->want);
        munmap(a->map, a->map_bytes);
    }
    p->count = 0;
}

struct array *random_array(struct pool *p, int64_t n, enum ds_dtype t, double scale)
{
    struct array *a = new_array(p, n, t);

    for (int64_t i = 0; i < n; i++) {
        double u = pool_uniform(p) + 1e-300, v = pool_uniform(p);

        a->want[i] = ref_stored(scale * sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v), t);
        store(a, i, a->want[i]);
    }
    return a;
}

struct array *output_array(struct pool *p, int64_t n, enum ds_dtype t)
{
    return new_array(p, n, t);
}

void *scratch(struct pool *p, size_t bytes)
{
    return new_array(p, (int64_t)((bytes + 63) / 64 * 64), DS_U8)->stored;
}

int32_t *random_ints(struct pool *p, int64_t n, int32_t below)
{
    struct array *a = new_array(p, n, DS_I32);

    for (int64_t i = 0; i < n; i++)
        ((int32_t *)a->stored)[i] = (int32_t)(pool_uniform(p) * below);
    return a->stored;
}

void array_check(const struct array *a, double tolerance, const char *what)
{
    double rms = 0.0;

    for (int64_t i = 0; i < a->n; i++)
        rms += a->want[i] * a->want[i] / (double)a->n;
    rms = sqrt(rms);
    for (int64_t i = 0; i < a->n; i++) {
        double got = array_get(a, i), off = fabs(got - a->want[i]);

        if (!(off <= tolerance * (fabs(a->want[i]) + rms)))
            fail_msg("%s, %s: element %lld of %lld is %.9g, not %.9g (rms %.3g, tolerance %.2g)",
                     what, kernels_cpu_isa(), (long long)i, (long long)a->n, got, a->want[i], rms,
                     tolerance);
    }
}
