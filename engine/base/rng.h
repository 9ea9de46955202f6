/* Counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11). A number is a function of what
 * it is for, so no state is kept and no topology can change it. */
#ifndef DS_BASE_RNG_H
#define DS_BASE_RNG_H

#include <stdint.h>

/* out[4] = Philox4x32-10 of counter ctr[4] under key[2]. */
void philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

/* Site of a random decision: hash of a name, e.g. "h.3.attn_dropout". Stable across builds
 * (low 32 bits of XXH3 of the bytes). */
uint32_t rng_site(const char *name);

/* Word number element % 4 of the block at counter (sample, site, element / 4): the layout that every
 * random mask follows. element / 4 must fit 32 bits. */
uint32_t rng_word(uint64_t seed, uint64_t sample, uint32_t site, uint64_t element);

/* Uniform in [0, 1) with 24 bits; standard normal by Box-Muller from the same block. */
static inline float rng_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* Normal number of element i of stream (seed, site): elements 2j and 2j+1 share one Box-Muller pair. */
double rng_normal(uint64_t seed, uint32_t site, uint64_t element);
/* out[i] = rng_normal(seed, site, first + i), at a quarter of the cost. */
void rng_normals(uint64_t seed, uint32_t site, uint64_t first, uint64_t n, double *out);

/* A keyed bijection of [0, n): sample order without a table. Feistel over the next power of four,
 * cycle-walked. i < n. */
uint64_t rng_permute(uint64_t seed, uint64_t epoch, uint64_t i, uint64_t n);

#endif
