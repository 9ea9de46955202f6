/* Little-endian packing with a bounds-checked reader. A reader that ran past its end stays failed and
 * gives zeros, so a message is read straight through and checked once at the end. */
#ifndef DS_BASE_WIRE_H
#define DS_BASE_WIRE_H

#include "engine/base/buf.h"

#include <stddef.h>
#include <stdint.h>

void put_u8(struct buf *b, uint8_t v);
void put_u16(struct buf *b, uint16_t v);
void put_u32(struct buf *b, uint32_t v);
void put_u64(struct buf *b, uint64_t v);
void put_i64(struct buf *b, int64_t v);
void put_f64(struct buf *b, double v);
void put_bytes(struct buf *b, const void *data, uint32_t n); /* u32 length, bytes */
void put_str(struct buf *b, const char *s);                  /* NULL is written as "" */

/* Which node each of n ranks is on, as runs of neighbouring nodes with equally many ranks: a few bytes for a
 * regular cluster of any size. */
void put_node_of(struct buf *b, const int *node_of, int n);

struct reader {
    const uint8_t *p, *end;
    int failed;
};

struct reader reader_of(const void *data, size_t n);
uint8_t get_u8(struct reader *r);
uint16_t get_u16(struct reader *r);
uint32_t get_u32(struct reader *r);
uint64_t get_u64(struct reader *r);
int64_t get_i64(struct reader *r);
double get_f64(struct reader *r);
/* Pointer into the message, valid as long as it is; NULL and *n = 0 on failure. */
const uint8_t *get_bytes(struct reader *r, uint32_t *n);
char *get_str(struct reader *r); /* owned copy, never NULL; embedded NUL fails the reader */
int *get_node_of(struct reader *r, int n); /* owned, [n]; NULL when the reader failed */
int node_of_rank(const void *runs, size_t n, int rank); /* in what put_node_of wrote; -1: it has no such rank */
int reader_done(const struct reader *r); /* 1 when nothing failed and nothing is left */

#endif
