/* The engine from outside: register layers, run as a rank. See engine/layer.h for what a layer is. */
#ifndef DS_ENGINE_H
#define DS_ENGINE_H

#include "engine/layer.h"

/* Adds a layer type for [model] layers; before ds_main. The struct must outlive it. -1: the type exists
 * or the ABI differs. */
int ds_register(const struct ds_layer_ops *ops);

/* The main program of a rank: ds-rank is this with the built-in layers. Returns the exit status.
 *   (no argument)      train, as a rank of an agent (DS_AGENT_FD)
 *   check FILE [--world N]      read the job, open the data, print the start table, start nothing
 *   lr FILE [-n STEPS]          print the learning rate of every step
 *   sample CKPT ...    write text from a checkpoint
 *   ckpt inspect|verify DIR     read a checkpoint
 *   data ...           make token files
 *   info [--settings]  what was built, every setting
 */
int ds_main(int argc, char **argv);

#endif
