/* Sums in rank order. Inside engine/comm only.
 *
 * Accumulators are fp32 for f32, bf16 and f16, and the type itself for f64, i64 and u8. These are
 * loops of our own and not kernels.reduce, because they write to several places in one pass, take a
 * partial sum that came over the wire, and must not start an OpenMP team on a communication thread.
 */
#ifndef DS_COMM_REDUCE_H
#define DS_COMM_REDUCE_H

#include "engine/comm/comm.h"

size_t acc_bytes(enum ds_dtype dtype); /* of one accumulator */

/* acc[i] = (have ? acc[i] : nothing) then src[0][i], src[1][i], ... in that order. nsrc >= 1 unless
 * have. */
void reduce_into(void *acc, int have, const void *const *src, int nsrc, int64_t n,
                 enum coll_reduce op, enum ds_dtype dtype);
/* y[i] = acc[i] rounded to dtype; they do not overlap. */
void reduce_round(void *y, const void *acc, int64_t n, enum ds_dtype dtype);
/* dst[d][i] = the reduction of src[.][i], for every d. A dst may be a src, at the same place. */
void reduce_many(void *const *dst, int ndst, const void *const *src, int nsrc, int64_t n,
                 enum coll_reduce op, enum ds_dtype dtype);

#endif
