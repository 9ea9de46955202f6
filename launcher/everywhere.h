/* ds-launch exec: one command on every host, each for itself. A host that cannot be reached or fails stops no
 * other. */
#ifndef DS_EVERYWHERE_H
#define DS_EVERYWHERE_H

#include "hostfile/hostfile.h"
#include "launcher/exportenv.h"
#include "launcher/options.h"
#include "launcher/spawner.h"

struct command {
    char **argv;
    int argc;
    struct envlist env; /* over the environment that the host gives */
};

/* signals: see keeper.h. Prints; returns the exit status: the largest of the
 * hosts' (255: not reached or lost; 124: out of time; 128 + the signal that killed it). */
int everywhere_run(const struct options *o, const struct command *command, const struct hosts *hosts,
                   const struct spawner_ops *ops, int signals);

/* exec.c: `ds-launch exec`, the whole. */
int cmd_exec(const struct options *o);

#endif
