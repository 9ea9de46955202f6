/* Our stdin, read by a thread of its own against the window that rank 0 opens. Reads only while this process is
 * in the foreground of its terminal. */
#ifndef DS_STDINPUMP_H
#define DS_STDINPUMP_H

#include "engine/base/err.h"

#include <stddef.h>
#include <uv.h>

struct stdin_pump;

/* take is called from the loop; n = 0: the end, once. NULL: no thread can be made. */
struct stdin_pump *stdin_pump_create(uv_loop_t *loop, int fd,
                                     void (*take)(void *ctx, const void *data, size_t n), void *ctx,
                                     struct err *err);
void stdin_pump_want(struct stdin_pump *p, size_t bytes); /* may be read beside what was allowed before */
void stdin_pump_destroy(struct stdin_pump *p);            /* NULL is fine; the loop runs once more */

#endif
