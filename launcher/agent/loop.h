/* The agent's event loop: descriptors, timers, signals. All callbacks run on the one thread of it.
 */
#ifndef DS_AGENT_LOOP_H
#define DS_AGENT_LOOP_H

#include "engine/base/err.h"

#include <stdint.h>

enum { LOOP_READ = 1, LOOP_WRITE = 2 };

struct loop;
struct watch;  /* a descriptor, borrowed */
struct ticker; /* a timer */

struct loop *loop_create(void);
void loop_destroy(struct loop *l); /* after every watch and ticker; NULL is fine */
void loop_run(struct loop *l);     /* until loop_stop */
void loop_stop(struct loop *l);

/* Makes fd non-blocking. Watches nothing yet. NULL and err when the system can't poll it. */
struct watch *watch_create(struct loop *l, int fd, void (*cb)(void *ctx, int events), void *ctx,
                           struct err *err);
void watch_set(struct watch *w, int events); /* LOOP_* or 0 */
/* Before the descriptor is closed; may be called from the callback. NULL is fine. */
void watch_destroy(struct watch *w);

struct ticker *ticker_create(struct loop *l, void (*cb)(void *ctx), void *ctx);
void ticker_set(struct ticker *t, int64_t after_ms, int64_t every_ms); /* every 0: once */
void ticker_stop(struct ticker *t);
void ticker_destroy(struct ticker *t);

/* Calls cb for this signal as long as the loop lives. */
int loop_signal(struct loop *l, int signo, void (*cb)(void *ctx, int signo), void *ctx,
                struct err *err);

#endif
