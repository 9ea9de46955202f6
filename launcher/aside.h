/* One piece of work that may hang (a file system) beside the loop: it runs on a thread of its own and its end is told
 * in the loop. Whoever waits for it can leave it behind. */
#ifndef DS_ASIDE_H
#define DS_ASIDE_H

#include <uv.h>

struct aside;

struct aside_work {
    void (*work)(void *arg); /* on the thread */
    void (*done)(void *arg); /* in the loop, behind work; not when it was left */
    void (*free)(void *arg); /* last, on either; of what is arg's alone */
};

/* Takes over arg. Where no thread can be made, the work is done before this returns. */
struct aside *aside_run(uv_loop_t *loop, const struct aside_work *w, void *arg);
/* done is told no more. The loop must run once more for its handle to close; work that hangs keeps its thread and arg
 * until it ends. Not after done, which ends it. NULL is fine. */
void aside_leave(struct aside *a);

#endif
