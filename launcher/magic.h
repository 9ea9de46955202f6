/* Finds MSG_MAGIC at the start of an agent's stream. What stands before it is the noise of shell start-up
 * files; its last part is kept, because it is what an error message quotes when the magic never comes. */
#ifndef DS_MAGIC_H
#define DS_MAGIC_H

#include "engine/base/buf.h"

#define MAGIC_NOISE_BYTES 4096         /* kept of the noise: its end */
#define MAGIC_SEARCH_BYTES (1u << 20)  /* noise beyond this is no shell start-up file */

struct magic {
    size_t matched; /* bytes of the magic seen so far */
    size_t seen;    /* bytes looked at */
    int found;
    struct buf noise;
};

#define MAGIC_INIT {0}

/* Returns where the bytes behind the magic begin in data[0..n): n when it is not (wholly) there yet, 0 once
 * it was found in an earlier call. m->found tells the difference. */
size_t magic_feed(struct magic *m, const void *data, size_t n);
/* 1 when so much came without the magic that it will not come. */
int magic_hopeless(const struct magic *m);
void magic_clear(struct magic *m);

#endif
