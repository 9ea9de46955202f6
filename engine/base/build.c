/* The build's identity: see build.h. The hash is made by make (engine/base/local.mk), so that two trees
 * with the same sources, compiler and flags have the same one. */
#include "engine/base/build.h"
#include "config.h"
#include "build_hash.h"

const char *build_id(void)
{
    return PACKAGE_VERSION "-" BUILD_HASH;
}
