/* Arrays for the operators' tests: each holds what it should be (double) and what is stored. The
 * stored bytes end at an unreadable page and begin behind a canary, so that one element too many is
 * a crash. */
#ifndef DS_TESTS_KERNELS_ARRAYS_H
#define DS_TESTS_KERNELS_ARRAYS_H

#include "kernels/kernels.h"

struct array {
    int64_t n;
    enum ds_dtype t;
    double *want; /* (n) */
    void *stored; /* (n) of type t */
    char *map;
    size_t map_bytes, head; /* bytes of canary before stored */
};

#define POOL_MAX 64
struct pool {
    struct array array[POOL_MAX];
    int count;
    uint64_t random; /* state of its generator */
};

/* Arrays live until pool_end, which also checks every canary. */
void pool_end(struct pool *);
/* Normal numbers times scale, rounded to t: want is exactly what is stored. */
struct array *random_array(struct pool *, int64_t n, enum ds_dtype t, double scale);
/* NaN all over; want is zero. */
struct array *output_array(struct pool *, int64_t n, enum ds_dtype t);
/* Scratch of a kernel, NaN all over. */
void *scratch(struct pool *, size_t bytes);
/* Integers in [0, below) */
int32_t *random_ints(struct pool *, int64_t n, int32_t below);
double pool_uniform(struct pool *);

double array_get(const struct array *, int64_t i);
/* Fails unless |got - want| <= tolerance * (|want| + rms of want) everywhere. */
void array_check(const struct array *, double tolerance, const char *what);

#endif
