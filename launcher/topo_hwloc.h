/* The topology of a machine that is not this one, for `ds-launch plan`. */
#ifndef DS_TOPO_HWLOC_H
#define DS_TOPO_HWLOC_H

#include "engine/base/err.h"
#include "launcher/topo.h"

/* what: an hwloc XML file (`lstopo FILE.xml` writes one), else a description as hwloc takes it; NULL: this machine,
 * all of it. -1: neither, or this build has no hwloc. */
int topo_hwloc(struct topo *t, const char *what, struct err *err);

#endif
