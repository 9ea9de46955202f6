/* One table of operators per instruction set; the matrix products are not in them. */
#ifndef DS_KERNELS_CPU_TABLES_H
#define DS_KERNELS_CPU_TABLES_H

#include "kernels/kernels.h"

extern const struct kernels kernels_table_plain, kernels_table_avx2, kernels_table_avx512,
    kernels_table_avx512bf16;

/* Matrix products (matmul.c), the same for every instruction set. */
struct ds_plans *matmul_plans_create(void);
void matmul_plans_destroy(struct ds_plans *);
const struct ds_plan *matmul_plan(struct ds_plans *, const struct ds_matmul *, size_t *work_bytes,
                                  char why[256]);
int matmul_run(const struct ds_plan *, const void *a, const void *b, void *c, const void *bias,
               float beta, void *work, struct ds_stream *);

#endif
