/* Simulated nodes: agents whose ranks are no processes. worker.c, chan.c, links.c, store.c and tell.c are the real
 * ones; what stands in for ranks.c, pump.c, check.c and reap.c is simranks.c, so a simulation and a cluster can't
 * speak differently. */
#ifndef DS_AGENT_SIM_H
#define DS_AGENT_SIM_H

#include "engine/base/err.h"

/* What a simulated rank does instead of being a program. */
enum sim_kind { SIM_TRUE, SIM_EXIT, SIM_ECHO, SIM_LINES, SIM_SLEEP, SIM_EXCHANGE, SIM_LOSE };

struct sim_program {
    enum sim_kind kind;
    int n;    /* exit's code, lines' number, sleep's milliseconds, the node that is lost */
    int rank; /* exit: the rank that ends so, the others wait; -1: all */
};

/* The words of a command line; -1: no program that can be simulated. */
int sim_program(char **argv, int argc, struct sim_program *p, struct err *err);

#endif
