/* What the ranks of one node share: values, descriptors and fences by name, with who waits for
 * them. Pure but for closing the descriptors it holds. */
#ifndef DS_AGENT_STORE_H
#define DS_AGENT_STORE_H

#include <stddef.h>
#include <stdint.h>

enum store_kind { STORE_VALUE, STORE_FD, STORE_FENCE };

struct waiter {
    int rank; /* index on this node */
    uint32_t id;
};

struct entry {
    enum store_kind kind;
    char *name;
    int have;       /* the value, the descriptor is there */
    int asked;      /* the front end was asked, or told that all are at the fence */
    uint8_t *value; /* owned */
    size_t n;
    int fd; /* owned */
    struct waiter *waiter;
    int nwaiters, cap;
    struct entry *next;
};

#define STORE_BUCKETS 1024

struct store {
    struct entry *bucket[STORE_BUCKETS];
};

/* Found or made. Lives until store_forget or store_clear. */
struct entry *store_entry(struct store *s, enum store_kind kind, const char *name);
void store_forget(struct store *s, struct entry *e);
void store_clear(struct store *s);
/* Puts the waiter in; -1 when this rank is at this fence already (values and descriptors may be
 * waited for by several threads of a rank). */
int entry_wait(struct entry *e, int rank, uint32_t id);
void entry_set(struct entry *e, const void *value, size_t n); /* copies; replaces */

#endif
