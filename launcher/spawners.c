/* The spawners of this build, in order of preference. */
#include "launcher/spawner.h"

#include <stddef.h>

const struct spawner_ops *const spawners[] = {
    &spawner_local,
    &spawner_ssh,
    &spawner_openssh,
    &spawner_exec,
    &spawner_sim,
    NULL,
};
