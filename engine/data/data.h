/* Tokens: raw text as bytes, or llm.c .bin shards (both versions), as samples of T tokens in an order that
 * is a function of (seed, position) alone. Files are mapped read-only and never modified. */
#ifndef DS_DATA_H
#define DS_DATA_H

#include "engine/base/err.h"
#include "engine/base/job.h"

#include <stdint.h>

enum data_split { DATA_TRAIN, DATA_VALID };

struct data;

/* Opens every file of [data], checks kind, headers, counts and (for .bin) token ids against vocab
 * (0: unknown). Raw text: token = byte, vocabulary 256. Errors name file and remedy. */
int data_open(struct data **, const struct job *, int64_t vocab, struct err *);
void data_close(struct data *); /* NULL is fine */

int64_t data_vocab(const struct data *);   /* smallest vocabulary that holds every id (256 for text) */
int64_t data_tokens(const struct data *, enum data_split);
/* Samples of one pass: floor((tokens - 1) / T) windows that do not overlap. */
int64_t data_samples(const struct data *, enum data_split);
uint64_t data_hash(const struct data *);   /* of names, sizes, kind and pieces of the content of the files: the
                                            * tokenizer's and data's identity in a checkpoint */

/* The sample at position p of the global order. TRAIN: pass p / n, window rng_permute(seed, pass, p % n, n);
 * VALID: window p (p < n). token and target (T): target[i] is the token after token[i], -1 where it
 * begins a new document and doc_mask is on. pos, doc (T) as in struct ds_batch (without doc_mask: 0..T-1
 * and 0). */
int data_sample(const struct data *, enum data_split, uint64_t p, int32_t *token, int32_t *target,
                int32_t *pos, int32_t *doc, struct err *err);

/* ds-rank data: text files -> .bin shards. argv[0] is "data". Returns the exit status. */
int data_main(int argc, char **argv);

#endif
