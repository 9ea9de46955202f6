/* What ds-launch does beside running: each returns the exit status and prints its own errors. */
#ifndef DS_SUBCOMMANDS_H
#define DS_SUBCOMMANDS_H

#include "launcher/options.h"

int cmd_hosts(const struct options *o);
int cmd_plan(struct options *o);
int cmd_info(const struct options *o);
int cmd_ps(const struct options *o);   /* jobs.c */
int cmd_kill(const struct options *o); /* jobs.c */
/* data, ckpt, sample, lr, info --settings: ds-rank with the same words. Returns only on failure. */
int cmd_rank(char **argv);

#endif
