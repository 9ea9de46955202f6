/* Compute threads of a rank and what a product runs at. Beside the kernels the one file that includes omp.h. */
#include "engine/train/train.h"

#include "engine/base/buf.h"
#include "engine/base/clock.h"
#include "engine/base/parse.h"

#include <omp.h>
#include <sched.h>
#include <stdlib.h>

int train_threads(const struct job *job, int local_ranks)
{
    const char *env = getenv("OMP_NUM_THREADS");
    int64_t n = job->threads;
    cpu_set_t set;

    if (n <= 0 && (!env || parse_i64(env, 1, 4096, &n) < 0)) {
        n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
        n = n / (local_ranks > 0 ? local_ranks : 1);
    }
    train_team_set(n < 1 ? 1 : (int)n);
    return n < 1 ? 1 : (int)n;
}

int train_team_size(void)
{
    return omp_get_max_threads();
}

/* A team belongs to the thread that began it: a stream that is a thread of its own needs its own. */
void train_team_set(int n)
{
    static __thread int is_set;

    if (is_set == n)
        return;
    omp_set_dynamic(0);
    omp_set_num_threads(n);
    kernels_cpu_thread_init();
    is_set = n;
}

double train_flops_per_s(const struct kernels *k, enum ds_dtype dtype)
{
    enum { N = 512 };
    struct ds_matmul d = {.m = N, .n = N, .k = N, .batch = 1, .tb = 1, .ab = dtype, .c = dtype};
    struct ds_plans *plans = k->plans_create();
    char *block = xcalloc(3 * N * N, sizeof(float));
    size_t work = 0;
    char why[256];
    const struct ds_plan *p = k->matmul_plan(plans, &d, &work, why);
    int64_t best = INT64_MAX;
    void *scratch = xmalloc(work + 64);

    for (int i = 0; p && i < 5; i++) {
        int64_t begin = clock_ns(), took;

        k->matmul_run(p, block, block + N * N * 4, block + 2 * N * N * 4, NULL, 0, scratch, NULL);
        took = clock_ns() - begin;
        if (took < best)
            best = took;
    }
    free(scratch);
    free(block);
    k->plans_destroy(plans);
    return p && best > 0 ? 2.0 * N * N * N / ((double)best * 1e-9) : 0;
}
