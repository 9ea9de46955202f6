/* SIGBUS of mapped files as an outcome: see guard.h.
 *
 * The signal comes to the thread that reads, in the middle of its load, so leaving by siglongjmp
 * interrupts nothing but that load. The handler is set anew by every guard, whoever took the signal
 * meanwhile, and stays; where no guard is set it puts the default back, and the load that is repeated on return ends
 * the process.
 */
#include "engine/data/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

static _Thread_local sigjmp_buf *volatile way_out; /* of this thread's guard, NULL: none */
static _Thread_local void *volatile missing;

static void on_bus(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (!way_out) {
        signal(sig, SIG_DFL);
        return;
    }
    missing = info->si_addr;
    siglongjmp(*way_out, 1);
}

static void install(void)
{
    struct sigaction act = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};

    sigemptyset(&act.sa_mask);
    sigaction(SIGBUS, &act, NULL);
}

const void *map_guard(void (*read)(void *ctx), void *ctx)
{
    sigjmp_buf here;
    const void *at = NULL;

    install();
    if (sigsetjmp(here, 1) == 0) {
        way_out = &here;
        read(ctx);
    } else {
        at = missing;
    }
    way_out = NULL;
    return at;
}
